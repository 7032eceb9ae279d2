"""Outcomes of replays, and the file of JSON lines that keeps them between runs.

A replay is the same whenever it is run, so one that is in the file need not be run
again, unless the code under test has changed: that is for the caller to say.
"""

from collections.abc import Container
from pathlib import Path

import msgspec

from simworker.simulate.replay import Outcome


class Key(msgspec.Struct, frozen=True):
    """Which replay: `events` says how the gateway hears of the workers' caches."""

    events: str
    block_size: int
    workload: str
    seed: int
    policy: str


class _Line(msgspec.Struct, frozen=True):
    key: Key
    outcome: Outcome


class Results:
    """Outcomes by key. The last line of a key in the file counts."""

    def __init__(self, path: Path | None, *, again: Container[str] = ()) -> None:
        """`path`: read what is there and append to it; what of the policies `again`
        is there does not count.
        """
        self._path = path
        self._found: dict[Key, Outcome] = {}
        if path is not None and path.exists():
            for text in path.read_bytes().splitlines():
                line = msgspec.json.decode(text, type=_Line)
                if line.key.policy not in again:
                    self._found[line.key] = line.outcome

    def __contains__(self, key: Key) -> bool:
        """Whether that replay need not be run."""
        return key in self._found

    def __getitem__(self, key: Key) -> Outcome:
        """What came of that replay; raises KeyError."""
        return self._found[key]

    def add(self, key: Key, outcome: Outcome) -> None:
        """Note what came of a replay, in the file at once."""
        self._found[key] = outcome
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(_Line(key, outcome)) + b"\n")
