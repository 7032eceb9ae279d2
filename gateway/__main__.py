"""`python -m gateway` is `kv-gateway`."""

import sys

from gateway.cli import main

sys.exit(main())
