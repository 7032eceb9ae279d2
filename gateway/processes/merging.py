"""Pages of several processes as one page: each part of it names its process.

Each function takes (number, page) of the processes that answered. What belongs to one
process stays apart, as its counters start anew with it; only totals are added up.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Pages = Sequence[tuple[int, Mapping[str, Any]]]

SHOWN_DECISIONS = 100
TOTALS = ("blocks", "bytes", "limit_bytes", "refused")
SLOT_TOTALS = (
    "prompt_tokens",
    "delivered_hit_tokens",
    "predicted_hit_tokens",
    "best_hit_tokens",
)
SLOT_TIMES = ("first_token_p50_s", "first_token_p95_s")

NAMED = b'process="'
"""Within the value of a label its quotes would be escaped."""


def workers(pages: Pages) -> dict[str, Any]:
    """`GET /gateway/workers`: every worker as each process sees it."""
    return {"workers": _named(pages, "workers")}


def index(pages: Pages) -> dict[str, Any]:
    """`GET /gateway/index`: totals, and the owners of each process."""
    totals = {name: sum(page[name] for _, page in pages) for name in TOTALS}
    return {**totals, "owners": _named(pages, "owners")}


def recent(pages: Pages) -> dict[str, Any]:
    """`GET /gateway/recent`: the slots of all added up, the decisions in one row.

    Of times the longest: those of all cannot be made of a part's.
    """
    decisions = sorted(_named(pages, "decisions"), key=lambda one: one["ago_s"])
    slots: dict[int, dict[str, Any]] = {}
    for _, page in pages:
        for slot in page["slots"]:
            known = slots.setdefault(slot["age"], {"age": slot["age"]})
            for name in SLOT_TOTALS:
                known[name] = known.get(name, 0) + slot[name]
            for name in SLOT_TIMES:
                told = [t for t in (known.get(name), slot[name]) if t is not None]
                known[name] = max(told, default=None)
    first = dict(pages[0][1])
    first["slots"] = [slots[age] for age in sorted(slots, reverse=True)]
    first["decisions"] = decisions[:SHOWN_DECISIONS]
    return first


def _named(pages: Pages, part: str) -> list[dict[str, Any]]:
    return [{"process": number, **one} for number, page in pages for one in page[part]]


def metrics(pages: Sequence[tuple[str, bytes]]) -> bytes:
    """Pages of metrics in Prometheus' text format as one, with a label `process` more.

    Summed counters would fall when a process is started anew, which Prometheus takes
    for a new start of all. Samples that name a process keep it.
    """
    heads: dict[bytes, list[bytes]] = {}
    samples: dict[bytes, list[bytes]] = {}
    for process, page in pages:
        label = b'process="%b"' % process.encode()
        family = b""
        for line in page.splitlines():
            if line.startswith((b"# HELP ", b"# TYPE ")):
                family = line.split(b" ", 3)[2]
                head = heads.setdefault(family, [])
                if len(head) < 2:
                    head.append(line)
            elif line and not line.startswith(b"#"):
                samples.setdefault(family, []).append(_labelled(line, label))
    lines = [line for name in heads for line in (*heads[name], *samples.get(name, ()))]
    return b"".join(line + b"\n" for line in lines)


def _labelled(line: bytes, label: bytes) -> bytes:
    if NAMED in line:
        return line
    name, brace, rest = line.partition(b"{")
    if brace and b" " not in name:
        return b"%b{%b,%b" % (name, label, rest)
    name, _, rest = line.partition(b" ")
    return b"%b{%b} %b" % (name, label, rest)
