"""A gateway that tells each finished request on stdout; the soak reads along.

`python -m bench._soak_gateway serve ...` is `kv-gateway serve ...`. Each line begins
with `settled`, then comes JSON: worker, when the request came and ended (the machine's
monotonic clock), predicted and delivered hit tokens. Its cache of tokenized text is
small: the usual one fills for a quarter of an hour, which would look like a leak.
"""

import json
import sys
import time
from functools import partial

import gateway.request.account
from gateway.cli import main
from gateway.errors import GatewayError
from gateway.request.account import Account
from render import Renderer

WORD = "settled"
SEGMENT_CACHE_BYTES = 4 * 1024 * 1024


class _Telling(Account):
    """An account that tells its end."""

    def ended(self, error: GatewayError | None) -> None:
        super().ended(error)
        outcome = self._decision.outcome
        if error is not None or outcome is None:
            return
        told = {
            "url": self._decision.worker.url,
            "begun": self._begun,
            "ended": time.monotonic(),
            "predicted": outcome.predicted_hit_tokens,
            "delivered": outcome.delivered_hit_tokens,
            "prompt": outcome.prompt_tokens,
            "estimated": outcome.estimated,
        }
        print(WORD, json.dumps(told), flush=True)


if __name__ == "__main__":
    gateway.request.account.Account = _Telling  # type: ignore[misc]
    small = partial(Renderer.load, segment_cache_bytes=SEGMENT_CACHE_BYTES)
    Renderer.load = small  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
