"""`python -m bench` lists the benchmarks; `python -m bench NAME [options]` runs one."""

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path


def benchmarks() -> dict[str, str]:
    """Name -> what it measures (the first line of its module's docstring)."""
    found = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not module.name.startswith("_"):
            text = importlib.import_module(f"bench.{module.name}").__doc__ or ""
            found[module.name] = text.strip().splitlines()[0]
    return found


def main(words: Sequence[str]) -> int:
    """Run the named benchmark, or list them all; the exit status."""
    known = benchmarks()
    if not words:
        print("python -m bench NAME [--help]\n")
        for name, text in known.items():
            print(f"  {name:10} {text}")
        return 0
    if words[0] not in known:
        print(f"no benchmark {words[0]!r}; there are: {', '.join(known)}")
        return 2
    importlib.import_module(f"bench.{words[0]}").run(words[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
