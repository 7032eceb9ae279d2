"""What the chaos benchmark prints, and the bounds that it checks."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from bench._chaos_traffic import Outcome

LAG_S = 0.02
UNNOTICED = 5
CLEAR = frozenset({
    "upstream_reset", "upstream_timeout", "upstream_malformed",
    "upstream_connect_failed", "upstream_stale_connection", "upstream_failed",
    "503",
})  # fmt: skip
"""The gateway's own, and what the busy worker says: where nobody else answered."""
LOSING = ("reset", "timeout")


class Report(msgspec.Struct, kw_only=True):
    """What was seen."""

    outcomes: Sequence[Outcome]
    faults: Mapping[str, str]
    """The fault of each worker's URL; empty: none."""
    inflight: Mapping[str, int]
    """Requests in flight at each when its fault began."""
    metrics: Mapping[str, float]
    """What each of the gateway's metrics grew by."""
    took: Sequence[str]
    """The ids that workers began to work on."""
    files: Sequence[int]
    memory_mb: Sequence[float]
    waited_share: float
    """Of the time: the gateway was ready to run, and others had the processors."""
    idle_lag_s: float
    """The p99 of how late a process was woken that does nothing else."""

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric with these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            value
            for sample, value in self.metrics.items()
            if sample.partition("{")[0] == f"kv_gateway_{name}"
            and all(label in sample for label in wanted)
        )

    def lag_p99_s(self) -> float:
        """The bucket of event-loop lag that 99 % of the samples are in."""
        buckets = sorted(
            (float(sample.split('le="')[1].split('"')[0]), count)
            for sample, count in self.metrics.items()
            if sample.startswith("kv_gateway_event_loop_lag_seconds_bucket")
        )
        every = buckets[-1][1]
        return next(bound for bound, count in buckets if count >= 0.99 * every)


def print_report(report: Report) -> bool:
    """Print it; whether every bound holds."""
    lost = [outcome for outcome in report.outcomes if not outcome.whole]
    codes = Counter(f"{outcome.status} {outcome.error}" for outcome in lost)
    told = ", ".join(f"{count}x {code}" for code, count in codes.items())
    print(f"{len(report.outcomes)} requests, {len(lost)} lost: {told or 'none'}")
    print(f"an idle process was late by {1000 * report.idle_lag_s:.1f} ms, p99;")
    print(f"the gateway waited for a processor {report.waited_share:.1%} of the time")
    bounds = [("every lost request got a clear error",
               all(outcome.error in CLEAR for outcome in lost))]  # fmt: skip
    bounds += [_worker(report, url, fault) for url, fault in report.faults.items()]
    bounds += [_nobody_elses(report, lost), _executions(report), _lag(report)]
    bounds += [
        _flat("file descriptors", [float(n) for n in report.files], 24.0),
        _flat("memory, MB", report.memory_mb, 24.0),
    ]
    print("bounds:")
    for text, holds in bounds:
        print(f"  {'holds ' if holds else 'BROKEN'}  {text}")
    return all(holds for _, holds in bounds)


def _worker(report: Report, url: str, fault: str) -> tuple[str, bool]:
    """What was lost at one worker, against what may be."""
    lost = sum(
        report.metric("upstream_failures_total", worker=url, kind=kind)
        for kind in LOSING
    )
    returns = report.metric("worker_returns_total", worker=url)
    answered = report.metric("attempts_total", worker=url, outcome="answered")
    may = 0.0
    if fault not in ("", "busy"):
        may = report.inflight[url] + UNNOTICED + returns
    inflight = report.inflight.get(url, 0)
    text = (
        f"{url} {fault or 'healthy':8} answered {answered:.0f}, lost {lost:.0f} of at "
        f"most {may:.0f} ({inflight} in flight, {returns:.0f} returns)"
    )
    return text, lost <= may


def _nobody_elses(report: Report, lost: Sequence[Outcome]) -> tuple[str, bool]:
    at_workers = sum(
        report.metric("upstream_failures_total", kind=kind) for kind in LOSING
    )
    text = f"lost {len(lost)}, as many as faulty workers had taken ({at_workers:.0f})"
    return text, len(lost) <= at_workers


def _executions(report: Report) -> tuple[str, bool]:
    twice = sum(count - 1 for count in Counter(report.took).values())
    stale = report.metric("retries_total", reason="stale")
    return f"{twice} executed twice, {stale:.0f} re-sent as stale", twice <= stale


def _lag(report: Report) -> tuple[str, bool]:
    """What the machine alone adds is not the gateway's."""
    lag, may = report.lag_p99_s(), LAG_S + report.idle_lag_s
    text = f"event loop late by at most {1000 * lag:.1f} ms, 99 % of the time"
    return f"{text}, of {1000 * may:.1f}", lag <= may


def _flat(what: str, values: Sequence[float], spare: float) -> tuple[str, bool]:
    """The last quarter against the second."""
    quarter = max(1, len(values) // 4)
    early, late = values[quarter : 2 * quarter] or values, values[-quarter:]
    before, after = sum(early) / len(early), sum(late) / len(late)
    text = f"{what}: {before:.0f} in the second quarter, {after:.0f} in the last"
    return text, after <= 1.1 * before + spare
