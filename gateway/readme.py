"""Writes the generated part of the README: `python -m gateway.readme`."""

import re
import sys
from pathlib import Path

from gateway.config import Config
from gateway.options import markdown_table


def with_options(readme: str) -> str:
    """The README's text with the option table of today."""
    table = f"<!-- options -->\n{markdown_table(Config)}<!-- /options -->"
    pattern = r"<!-- options -->.*?<!-- /options -->"
    return re.sub(pattern, lambda _: table, readme, flags=re.DOTALL)


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "README.md")
    path.write_text(with_options(path.read_text()))
