"""What a worker says of its load: whatever runs and waits there, whoever sent it.

The ledger knows only what this gateway sent. Where a worker says that more is waiting
there than that, others wait too, and a request of ours would wait behind them. A
report counts for a few seconds; then it is history, and the ledger stands alone.
"""

import msgspec

KV_FULL = 0.95
"""Share of a KV cache in use from which on a new request has to wait for room."""
LIVES_S = 5.0
"""A report is believed for so long, unless another comes before."""


class Prefills(msgspec.Struct, frozen=True):
    """Counters of an engine: prefills done, tokens they computed, seconds they took.

    `count` is None where it does not count them.
    """

    tokens: float
    seconds: float
    count: float | None = None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One rank, in an engine's own numbers; None where it does not say.

    `kv_usage` is the share of its KV cache that requests in progress use, from 0 to 1;
    `waiting_tokens` what those that wait have to prefill.
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float | None = None
    waiting_tokens: int | None = None
    prefills: Prefills | None = None


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """A load, where it was read (`source`), and when, by the pool's clock.

    `others_tokens` is an estimate: uncached prompt tokens that wait there and that the
    ledger does not count, as others sent them, or as they should be done by now.
    """

    load: Load
    source: str
    at: float
    until: float
    others_tokens: int

    @property
    def full(self) -> bool:
        """Whether a new request would have to wait for room."""
        usage = self.load.kv_usage
        return usage is not None and usage >= KV_FULL


def of_others(load: Load, own: int, usual_tokens: float) -> int:
    """Uncached prompt tokens that wait and are not ours, of whom `own` may wait there.

    Where the engine counts requests only, each is taken to be as long as is usual.
    """
    others = max(0, load.waiting - own)
    if not others:
        return 0
    if load.waiting_tokens is None:
        return int(others * usual_tokens)
    return int(load.waiting_tokens * others / load.waiting)
