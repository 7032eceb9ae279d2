"""What a worker says of its load: whatever runs and waits there, whoever sent it.

The ledger knows only what this gateway sent. Where a worker says that more is waiting
there than that, others wait too, and a request of ours would wait behind them. A
report counts for a few seconds; then it is history, and the ledger stands alone.
"""

import math

import msgspec

KV_FULL = 0.95
"""Share of a KV cache in use from which on a new request has to wait for room."""
LIVES_S = 5.0
"""A report is believed for so long, unless another comes before."""
LATELY_S = 15.0
"""What runs at a worker, and its KV usage, are means that forget after about so long.

Several gateways that each made up at once for what they see, some seconds late, would
all do so too much, and the load would swing from one worker to the next and back.
"""


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
    `others_running` are requests that run there and are not ours; it and `kv_usage` are
    means of the reports of about `LATELY_S`.
    """

    load: Load
    source: str
    at: float
    until: float
    others_tokens: int
    others_running: float = 0.0
    kv_usage: float | None = None

    @property
    def full(self) -> bool:
        """Whether a new request would have to wait for room."""
        usage = self.load.kv_usage
        return usage is not None and usage >= KV_FULL


def goes_on(before: LoadReport | None, load: Load) -> bool:
    """Whether its engine did something since: prefilled, decoded, or ended a request.

    What runs and waits there changes by what is sent, too, and tells nothing.
    """
    if before is None:
        return False
    was = before.load
    return (was.kv_usage, was.prefills) != (load.kv_usage, load.prefills)


def after(before: LoadReport | None, report: LoadReport) -> LoadReport:
    """A new report, its means taken with those of the one before, if that counts."""
    if before is None or before.until < report.at:
        return report
    share = 1 - math.exp((before.at - report.at) / LATELY_S)
    usage = report.kv_usage
    if usage is not None and before.kv_usage is not None:
        usage = before.kv_usage + share * (usage - before.kv_usage)
    running = before.others_running + share * (
        report.others_running - before.others_running
    )
    return msgspec.structs.replace(report, others_running=running, kv_usage=usage)


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


def running_of_others(load: Load, own_waiting: int, own: int) -> int:
    """Requests that run there beyond `own`, of whom `own_waiting` may wait there.

    Whichever of ours wait or run: of all that are there ours are taken off, and those
    of others that wait.
    """
    others = load.running + load.waiting - max(own, own_waiting)
    waiting = max(0, load.waiting - own_waiting)
    return max(0, min(load.running, others - waiting))
