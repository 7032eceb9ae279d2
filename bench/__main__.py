"""`python -m bench` lists the benchmarks; `python -m bench NAME [options]` runs one."""

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path


def benchmarks() -> list[str]:
    """Their names."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return [module.name for module in modules if not module.name.startswith("_")]


def measured_by(name: str) -> str:
    """What one measures: the first line of its module's docstring."""
    text = importlib.import_module(f"bench.{name}").__doc__ or ""
    return text.strip().splitlines()[0]


def main(words: Sequence[str]) -> int:
    """Run the named benchmark, or list them all; the exit status."""
    known = benchmarks()
    if not words:
        print("python -m bench NAME [--help]\n")
        for name in known:
            print(f"  {name:10} {measured_by(name)}")
        return 0
    if words[0] not in known:
        print(f"no benchmark {words[0]!r}; there are: {', '.join(known)}")
        return 2
    importlib.import_module(f"bench.{words[0]}").run(words[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
