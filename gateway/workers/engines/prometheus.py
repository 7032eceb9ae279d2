"""Numbers of a Prometheus page by data-parallel rank. No I/O, no names of any engine.

A page may be long and is read every second: names are searched for, lines that have
none of them are never looked at.
"""

import re
from collections.abc import Iterator

from gateway.workers.engines.facts import LARGEST_COUNT, RANKS

SAMPLES = 4 * RANKS
"""Of one metric, at most."""


def by_rank(
    page: str, label: str, *names: str, limit: int = LARGEST_COUNT
) -> dict[int, float]:
    """The first of these metrics that is there: rank to value, the largest of several.

    `label` names the rank; without it a sample is rank 0's. A value that is negative
    or above `limit` is none.
    """
    text = "\n" + page
    for name in names:
        found: dict[int, float] = {}
        for rank, value in _samples(text, name, label):
            if not 0 <= value <= limit:  # nor is NaN
                continue
            found[rank] = max(value, found.get(rank, 0.0))
        if found:
            return found
    return {}


def _samples(text: str, name: str, label: str) -> Iterator[tuple[int, float]]:
    end = 0
    for _ in range(SAMPLES):
        at = text.find("\n" + name, end)
        if at < 0:
            return
        end = text.find("\n", at + 1)
        line = text[at + 1 + len(name) : end if end >= 0 else None]
        labels, _, rest = line.rpartition("}")
        value, rank = _number(rest), _rank(labels, label)
        if line[:1] in ("{", " ") and value is not None and rank is not None:
            yield rank, value
        if end < 0:
            return


def _number(text: str) -> float | None:
    try:
        return float(text.split(maxsplit=1)[0])
    except (ValueError, IndexError):
        return None


def _rank(labels: str, label: str) -> int | None:
    found = re.search(rf'[{{,]{label}="([^"]*)"', labels)
    if found is None:
        return 0
    text = found[1]
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) >= RANKS:
        return None
    return int(text)
