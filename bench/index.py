"""The prefix index: hashing, matching, events, memory, churn; Dynamo's beside it.

Each cell is a process of its own that works on the same seeded blocks; of two indexes
the cells alternate, and their answers are compared. Tables are Markdown.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench._index_lag import measure, report
from bench._index_work import KINDS
from bench._machine import machine
from bench._processes import percentile

OURS, PEER = "ours", "dynamo"
PACKAGE = "ai-dynamo-runtime==1.6.1"
INSTALL = f"""needs Dynamo's index in an environment of its own:
  python3 -m venv DIR
  DIR/bin/pip install --no-deps {PACKAGE}
  python -m bench index --dynamo DIR/bin/python"""
PARTS = ("hash", "tree", "churn", "lag")
HASH_AIMS = {"16": 1.10, "64": 1.0}
ENTRY_BYTES = 210
GROWTH = 1.10
LAG_S = 0.005
RATE = 50_000
HASH_ROUNDS = 5

Cell = dict[str, dict[str, Any]]
"""What one cell measured, by side."""


def run(argv: Sequence[str]) -> None:
    """Print the tables; SystemExit where answers differ."""
    parser = argparse.ArgumentParser(prog="python -m bench index", description=__doc__)
    parser.add_argument(
        "--dynamo", metavar="PYTHON", help=f"an interpreter that has {PACKAGE}"
    )
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--workers", default="8,64")
    parser.add_argument("--entries", default="100000,1000000")
    parser.add_argument("--churn-blocks", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--seconds", type=float, default=10.0, help="of pouring events")
    options = parser.parse_args(argv)
    bench = Bench(options.dynamo, options.seed)
    load = os.getloadavg()[0]
    print(f"{machine(('xxhash', 'msgspec'))}; load {load:.0f} before\n")
    parts = options.only or PARTS
    if "hash" in parts:
        bench.hash_table()
    if "tree" in parts:
        sizes = [int(size) for size in options.entries.split(",")]
        workers = [int(count) for count in options.workers.split(",")]
        bench.tree_table([(w, size) for size in sizes for w in workers])
    if "churn" in parts:
        bench.churn_table(options.churn_blocks)
    if "lag" in parts:
        lag_table(options.seconds)


class Bench:
    """Runs cells, each on every side in turn."""

    def __init__(self, peer: str | None, seed: int) -> None:
        """`peer` is the interpreter of Dynamo's side; None leaves it out."""
        self._interpreters = {OURS: sys.executable}
        if peer is not None:
            self._interpreters[PEER] = _proven(peer)
        self._seed = seed

    def _measured(self, cell: str, workers: int = 1, entries: int = 0) -> Cell:
        return {
            side: self._side(python, cell, side, workers, entries)
            for side, python in self._interpreters.items()
        }

    def _side(
        self, python: str, cell: str, side: str, workers: int, entries: int
    ) -> dict[str, Any]:
        numbers = map(str, (self._seed, workers, entries))
        done = subprocess.run(
            [python, "-m", "bench._index_cell", cell, side, *numbers],
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def hash_table(self) -> None:
        """Of 32,768 ids in a list, as tokenizers give them, and packed."""
        cells = [self._measured("hash") for _ in range(HASH_ROUNDS)]
        self._head("hash 32,768 ids, us", ["ids in a list"])
        for size, aim in HASH_AIMS.items():
            times = [_by(cell, size) for cell in cells]
            middle = {side: median(time[side] for time in times) for side in times[0]}
            self._row(f"block size {size}", [(middle, aim)])
        for size in HASH_AIMS:
            packed = median(cell[OURS]["packed"][size] for cell in cells)
            print(f"\nIds that are packed already, as rendered, {size}: {packed:.1f}")
        print(flush=True)

    def tree_table(self, sizes: Sequence[tuple[int, int]]) -> None:
        """Of so many workers and entries each."""
        rows = []
        for workers, entries in sizes:
            cell = self._measured("tree", workers, entries)
            if len({result["answers"] for result in cell.values()}) > 1:
                raise SystemExit(f"the answers differ: {cell}")
            rows.append((f"{workers} workers, {entries:,} entries", cell))
        self._head("match, us", list(KINDS))
        for name, cell in rows:
            self._row(name, [(_by(cell, kind, "p50"), 1.0) for kind in KINDS])
        print("\n| ours, chaining the prompt first, us |", " | ".join(KINDS), "|")
        print("|---|" + "---:|" * len(KINDS))
        for name, cell in rows:
            times = [f"{cell[OURS][kind]['chain']:.0f}" for kind in KINDS]
            print(f"| {name} |", " | ".join(times), "|")
        print()
        titles = ["stored per CPU second", "removed", "bytes an entry"]
        self._head("events, blocks", titles)
        for name, cell in rows:
            rates = [(_by(cell, what), None) for what in ("store", "remove", "bytes")]
            self._row(name, rates, digits=0)
        most = max(cell[OURS]["bytes"] for _, cell in rows)
        print(f"\n{_aim(f'under {ENTRY_BYTES} bytes an entry', most < ENTRY_BYTES)}\n")

    def _head(self, first: str, columns: Sequence[str]) -> None:
        titles = []
        for column in columns:
            titles += [f"{column}: {self._titles[0]}", *self._titles[1:]]
        print(f"| {first} |", " | ".join(titles), "|")
        print("|---|" + "---:|" * len(titles), flush=True)

    @property
    def _titles(self) -> list[str]:
        return [OURS] if len(self._interpreters) == 1 else [OURS, PEER, "aim"]

    def _row(
        self,
        name: str,
        cells: Sequence[tuple[dict[str, float], float | None]],
        digits: int = 1,
    ) -> None:
        """A line; an aim is how much of the peer's value ours may be."""
        parts = []
        for values, aim in cells:
            parts += [f"{value:,.{digits}f}" for value in values.values()]
            if len(values) > 1:
                met = aim is None or values[OURS] <= aim * values[PEER]
                parts.append("" if aim is None else ("met" if met else "missed"))
        print(f"| {name} |", " | ".join(parts), "|", flush=True)

    def churn_table(self, blocks: int) -> None:
        """Resident memory while blocks come and go."""
        cell = self._measured("churn", 1, blocks)
        print(f"MB resident after each round of {blocks:,} blocks stored and removed\n")
        rounds = range(1, len(cell[OURS]["sizes"]) + 1)
        print("| round |", " | ".join(map(str, rounds)), "| last to second |")
        print("|---|" + "---:|" * (len(rounds) + 1))
        for side, result in cell.items():
            sizes = result["sizes"]
            shown = " | ".join(f"{size:.0f}" for size in sizes)
            print(f"| {side} | {shown} | {sizes[-1] / sizes[1]:.2f} |")
        sizes = cell[OURS]["sizes"]
        flat = _aim("within a tenth of the second", sizes[-1] <= GROWTH * sizes[1])
        print(f"\n{flat}\n", flush=True)


def lag_table(seconds: float) -> None:
    """Of matches and of the event loop while events pour in."""
    lag = measure(RATE, seconds)
    print(f"{RATE} blocks/s by ZMQ, stored and removed:\n\n    {report(lag)}\n")
    for name, values in (
        ("match", lag.matches),
        ("lateness, the machine's other work included,", lag.waits),
        ("CPU time between two", lag.cpu),
    ):
        late = percentile(values, 0.99)
        print(_aim(f"p99 of {name} under {1e3 * LAG_S:.0f} ms", late < LAG_S))


def _proven(python: str) -> str:
    """The interpreter, if it has Dynamo's index; SystemExit where it has not."""
    words = [python, "-c", "import dynamo._core"]
    try:
        done = subprocess.run(words, stderr=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise SystemExit(f"--dynamo {python}: {error}; {INSTALL}") from None
    if done.returncode:
        raise SystemExit(f"--dynamo {python} {INSTALL}")
    return python


def _by(cell: Cell, *keys: str) -> dict[str, float]:
    """One value of each side."""
    values = {}
    for side, result in cell.items():
        value: Any = result
        for key in keys:
            value = value[key]
        values[side] = value
    return values


def _aim(what: str, met: bool) -> str:
    return f"- aim: {what}: {'met' if met else 'missed'}"
