"""What a soak is judged by."""

from collections import Counter

import msgspec
import pytest

from bench._soak_report import Report, print_report
from bench._soak_traffic import Traffic
from bench._soak_windows import Settled, Window, Windows

URLS = ("http://a", "http://b")


def settled(url: str, at: float, *, predicted: int = 100) -> Settled:
    """A request of which 100 tokens were found cached."""
    return Settled(
        url=url,
        begun=at,
        ended=at + 1,
        predicted=predicted,
        delivered=100,
        prompt=200,
        estimated=False,
    )


def report(*requests: Settled) -> Report:
    """A run of 20 such requests at each worker, and these; a fault in second 500."""
    windows = Windows([])
    windows.all = {url: [] for url in URLS}
    windows.all[URLS[0]].append(Window(fault="drop", begun=500.0, end=510.0))
    traffic = Traffic.__new__(Traffic)
    traffic.requests, traffic.failures = 40, Counter()
    usual = [settled(url, float(at)) for url in URLS for at in range(20)]
    return Report(
        seconds=600.0,
        traffic=traffic,
        windows=windows,
        settled=[*usual, *requests],
        memory=[(float(at), 100_000) for at in range(100)],
        wrong=(),
        kinds=dict.fromkeys(URLS, "vllm"),
        suspect_ttl_s=20.0,
    )


def verdict(run: Report, **changes: object) -> bool:
    """Whether all bounds hold of a run with these changes."""
    return print_report(msgspec.structs.replace(run, **changes))


def test_a_good_run() -> None:
    """What is predicted wrongly within a window of its worker does not count."""
    assert verdict(report(settled(URLS[0], 505.0, predicted=9_000)))


def test_each_bound_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """One thing wrong at a time, and just that is named."""
    good = report()
    failing = Traffic.__new__(Traffic)
    failing.requests, failing.failures = 40, Counter(("500: no",))
    growing = [(float(at), 100_000 + 2_000 * at) for at in range(100)]
    inside = [settled(URLS[0], 505.0)] * 20
    runs = {
        "requests succeeded": verdict(good, traffic=failing),
        "equal share": verdict(report(*[settled(URLS[1], 30.0)] * 200)),
        "inside fault windows": verdict(report(*inside)),
        "outside, predicted": verdict(report(settled(URLS[0], 30.0, predicted=999))),
        "memory grew": verdict(good, memory=growing),
        "feeds are right": verdict(good, wrong=("rank 0 is silent",)),
    }
    assert not any(runs.values())
    broken = [line for line in capsys.readouterr().out.splitlines() if "BROKEN" in line]
    assert len(broken) == len(runs)
    assert all(text in line for text, line in zip(runs, broken, strict=True))
