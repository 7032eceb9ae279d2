"""Fuzz every decoder of what workers and clients send, and keep what breaks one.

Inputs are broken versions of captured ones. A finding is an input that raises what it
must not, or takes longer than it may; it is kept as a file, by target. Memory is bound.
"""

import argparse
import hashlib
import itertools
import logging
import random
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import FrameType

from bench._fuzz_target import Target
from bench._fuzz_targets import targets

CORPUS = Path(__file__).parents[1] / "tests" / "data" / "fuzz"
TOO_LONG_S = 5
"""Seconds of CPU one input may take."""
GROWTH_BYTES = 256 << 20
AT_ONCE, AT_ONCE_S = 200, 2.0
"""Inputs that one target tries before the next one's turn; seconds of CPU at most."""
KEPT = 20
"""Findings of one target that are kept."""
POOL = 2_000


class TookTooLong(Exception):
    """An input took more than TOO_LONG_S."""


def run(argv: Sequence[str]) -> None:
    """Fuzz and print; exit status 1 where there are findings."""
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="of CPU")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument(
        "--target", action="append", help="some only, as in 'derender*'"
    )
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(argv)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}")
    signal.signal(signal.SIGPROF, _too_long)
    logging.disable()  # feeds tell of each change
    chosen = {
        name: Fuzzer(name, target, options.corpus, random.Random(f"{seed}/{name}"))
        for name, target in targets().items()
        if any(fnmatchcase(name, wanted) for wanted in options.target or "*")
    }
    end, before = time.process_time() + 60 * options.minutes, resident_bytes()
    most = before
    for fuzzer in itertools.cycle(chosen.values()):
        fuzzer.go(AT_ONCE)
        most = max(most, resident_bytes())
        if time.process_time() > end:
            break
    for fuzzer in chosen.values():
        print(fuzzer.line())
    for line in itertools.chain(*(fuzzer.told() for fuzzer in chosen.values())):
        print(line)
    grown = most - before
    print(f"memory grew by {grown / 1e6:.0f} MB at most")
    if grown > GROWTH_BYTES or any(fuzzer.findings for fuzzer in chosen.values()):
        raise SystemExit(1)


def _too_long(_: int, __: FrameType | None) -> None:
    raise TookTooLong


def resident_bytes() -> int:
    """Memory of this process as the system counts it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096


class Fuzzer:
    """One target: its inputs, findings, and the slowest input."""

    def __init__(
        self, name: str, target: Target, corpus: Path, rng: random.Random
    ) -> None:
        self._name, self._call, self._rng = name, target.call, rng
        self._mutate, self.told = target.mutate, target.told
        self._corpus = corpus / name.replace(" ", "_")
        self._inputs = [*target.seeds, *corpus_of(self._corpus)]
        self._tried = 0
        self._slowest = (0.0, b"")
        self.findings: dict[str, str] = {}

    def go(self, count: int, seconds: float = AT_ONCE_S) -> None:
        """Try so many inputs, or fewer that take long."""
        end = time.process_time() + seconds
        for _ in range(count):
            if time.process_time() > end:
                break
            data = self._mutate(self._rng, *self._rng.choices(self._inputs, k=2))
            start = time.process_time()
            why = failure(self._call, data)
            taken = time.process_time() - start
            self._tried += 1
            if why is not None:
                self._note(data, why)
            elif len(self._inputs) < POOL and self._rng.random() < 0.02:
                self._inputs.append(data)  # to be broken further
            if taken > self._slowest[0]:
                self._slowest = (taken, data)

    def _note(self, data: bytes, why: str) -> None:
        """Keep one input for each place that fails, made as small as it gets."""
        place = why.splitlines()[0]
        if place in self.findings or len(self.findings) >= KEPT:
            return
        small = shrunk(self._call, data, place)
        self._corpus.mkdir(parents=True, exist_ok=True)
        path = self._corpus / hashlib.sha256(small).hexdigest()[:12]
        path.write_bytes(small)
        self.findings[place] = str(path)
        print(f"{self._name}: {why}\n  {path}: {small[:200]!r}", flush=True)

    def line(self) -> str:
        """What came of it."""
        taken, data = self._slowest
        return (
            f"{self._name:14} {self._tried:8} inputs, {len(self.findings)} findings, "
            f"slowest {1e3 * taken:.1f} ms of CPU for {len(data)} bytes {data[:40]!r}"
        )


def corpus_of(directory: Path) -> list[bytes]:
    """What was found there before."""
    return [path.read_bytes() for path in sorted(directory.glob("*"))]


def failure(call: Callable[[bytes], object], data: bytes) -> str | None:
    """Where and how an input fails, or None; the first line tells failures apart."""
    signal.setitimer(signal.ITIMER_PROF, TOO_LONG_S)
    try:
        call(data)
    except TookTooLong:
        return "takes too long"
    except Exception as error:  # whatever it is: that is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        said = f" ({error})" if isinstance(error, AssertionError) else ""
        what = f"{type(error).__name__}{said[:80]}"
        return f"{what} at {where}\n{traceback.format_exc(limit=-6)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def shrunk(call: Callable[[bytes], object], data: bytes, place: str) -> bytes:
    """A smaller input that fails alike: parts are left out while it does."""
    size, end = max(1, len(data) // 2), time.monotonic() + 20
    while size and time.monotonic() < end:
        at = 0
        while at < len(data) and time.monotonic() < end:
            less = data[:at] + data[at + size :]
            if (failure(call, less) or "").startswith(place):
                data = less
            else:
                at += size
        size //= 2
    return data
