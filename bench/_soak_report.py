"""The report of a soak: what happened, and whether the bounds hold."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from bench._soak_traffic import Traffic
from bench._soak_windows import Settled, Windows

INSIDE = 0.30
ERROR = 0.05
GROWTH = 0.10
LOAD = 0.25
WORST = 12


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one run gathered; `memory` is (time, resident bytes) of the gateway."""

    seconds: float
    traffic: Traffic
    windows: Windows
    settled: Sequence[Settled]
    memory: Sequence[tuple[float, int]]
    wrong: Sequence[str]
    kinds: Mapping[str, str]
    suspect_ttl_s: float


class Sums:
    """Hit tokens of some requests."""

    def __init__(self) -> None:
        self.requests = 0
        self.predicted = 0
        self.delivered = 0
        self.error = 0

    def add(self, request: Settled) -> None:
        """One more request, if its worker told what it found cached."""
        self.requests += 1
        if request.delivered is not None:
            self.predicted += request.predicted
            self.delivered += request.delivered
            self.error += abs(request.predicted - request.delivered)

    @property
    def share(self) -> float:
        """The error as a share of what was delivered."""
        return self.error / max(self.delivered, 1)

    def __str__(self) -> str:
        return (
            f"{self.requests:6} requests, predicted {self.predicted:9}, delivered "
            f"{self.delivered:9}, error {self.error:8} = {self.share:6.1%}"
        )


def print_report(report: Report) -> bool:
    """Print it; whether all bounds hold."""
    inside, outside = Sums(), Sums()
    by_worker: defaultdict[str, Sums] = defaultdict(Sums)
    for request in report.settled:
        window = report.windows.holds(request)
        (inside if window else outside).add(request)
        if window is None:
            by_worker[request.url].add(request)
    traffic = report.traffic
    print(f"{report.seconds:.0f} s, --suspect-ttl {report.suspect_ttl_s:g}")
    print(f"{traffic.requests} requests, {sum(traffic.failures.values())} failed")
    for text, count in traffic.failures.most_common(5):
        print(f"  {count} times {text!r}")
    _print_faults(report)
    print(f"inside fault windows  {inside}")
    print(f"outside               {outside}")
    for url, sums in sorted(by_worker.items(), key=lambda item: -item[1].error):
        print(f"  {url} {sums}  {report.kinds[url]}")
    _print_worst(report)
    step = max(1, len(report.memory) // 20)
    sizes = " ".join(f"{size / 1e6:.0f}" for _, size in report.memory[::step])
    print(f"memory of the gateway, MB, from begin to end: {sizes}")
    return _judged(report, inside, outside)


def _print_worst(report: Report) -> None:
    """The requests outside windows that were predicted worst, and what came before."""
    told = [
        request
        for request in report.settled
        if request.delivered not in (None, request.predicted)
        and report.windows.holds(request) is None
    ]
    told.sort(key=lambda request: -abs(request.predicted - (request.delivered or 0)))
    for request in told[:WORST]:
        before = report.windows.last_before(request)
        after = "no fault yet"
        if before is not None:
            after = f"{request.begun - before.end:.0f} s after {before.fault!r}"
        print(
            f"  {request.url} predicted {request.predicted:5} of {request.prompt}, "
            f"delivered {request.delivered:5}, {after}"
        )


def _print_faults(report: Report) -> None:
    lengths: defaultdict[str, list[float]] = defaultdict(list)
    for windows in report.windows.all.values():
        for window in windows:
            lengths[window.fault].append(window.end - window.begun)
    total = sum(map(len, lengths.values()))
    print(f"{total} faults; how long their windows were, in seconds:")
    for fault, seconds in sorted(lengths.items()):
        shown = " ".join(f"{each:.1f}" for each in sorted(seconds))
        print(f"  {fault:26} {shown}")


def _judged(report: Report, inside: Sums, outside: Sums) -> bool:
    share = inside.requests / max(inside.requests + outside.requests, 1)
    growth = _growth([size for _, size in report.memory])
    least = _least(report)
    verdicts = {
        f"all {report.traffic.requests} requests succeeded": (
            not report.traffic.failures and report.traffic.requests > 0
        ),
        f"each worker had {least:.0%} of an equal share of them or more "
        f"(at least {LOAD:.0%})": least >= LOAD,
        f"{share:.1%} of requests inside fault windows (at most {INSIDE:.0%})": (
            share <= INSIDE
        ),
        f"outside, predicted differs from delivered by {outside.share:.1%} "
        f"(at most {ERROR:.0%})": outside.share <= ERROR,
        f"the gateway's memory grew by {growth:+.1%} since a quarter of the run "
        f"(at most {GROWTH:.0%})": growth <= GROWTH,
        "feeds are right at the end": not report.wrong,
    }
    for text, holds in verdicts.items():
        print(f"{'ok    ' if holds else 'BROKEN'} {text}")
    for text in report.wrong:
        print(f"       {text}")
    return all(verdicts.values())


def _least(report: Report) -> float:
    """The requests of the worker that had fewest, as a part of an equal share."""
    served = Counter(request.url for request in report.settled)
    fewest = min(served[url] for url in report.kinds)
    return fewest * len(report.kinds) / max(served.total(), 1)


def _growth(sizes: Sequence[int]) -> float:
    """From the second quarter's start to the end, medians of a twentieth each."""
    part = max(len(sizes) // 20, 1)
    start = len(sizes) // 4
    if not sizes:
        return 0.0
    before = statistics.median(sizes[start : start + part])
    return statistics.median(sizes[-part:]) / before - 1.0
