"""The demo's figures and its table."""

import msgspec

from simworker.report import Figures, Sample, summarize, table

A, B = "http://127.0.0.1:1001", "http://127.0.0.1:1002"


def sample(worker: str, ttft_s: float, cached: int = 10) -> Sample:
    """One answered request of 100 prompt tokens."""
    return Sample(worker=worker, prompt_tokens=100, cached_tokens=cached, ttft_s=ttft_s)


SAMPLES = [sample(A, 0.1 * n) for n in range(1, 11)] + [sample(B, 2.0, cached=60)]


def test_figures() -> None:
    """Sums, means and the 90th percentile, for each worker and in total."""
    report = summarize(SAMPLES, {A: 90, B: 60}, {A: 10}, [A, B])
    assert report.workers[A] == Figures(
        requests=10,
        prompt_tokens=1000,
        predicted_hit_tokens=90,
        delivered_hit_tokens=100,
        prediction_error_tokens=10,
        ttft_mean_s=0.55,
        ttft_p90_s=0.9,
    )
    assert report.totals.requests == 11
    assert report.totals.predicted_hit_tokens == 150
    assert report.totals.delivered_hit_tokens == 160
    assert report.totals.ttft_p90_s == 1.0


def test_an_idle_worker() -> None:
    """A worker without requests has a row of zeros."""
    idle = summarize([], {}, {}, [A]).workers[A]
    assert set(msgspec.to_builtins(idle).values()) == {0}


def test_json() -> None:
    """The shape that `--json` promises."""
    written = summarize(SAMPLES, {A: 90}, {}, [A, B]).to_json()
    names = {"requests", "prompt_tokens", "predicted_hit_tokens",
             "delivered_hit_tokens", "prediction_error_tokens", "ttft_mean_s",
             "ttft_p90_s"}  # fmt: skip
    assert set(written) == {"totals", "workers"}
    totals, workers = written["totals"], written["workers"]
    assert isinstance(totals, dict)
    assert isinstance(workers, list)
    assert set(totals) == names
    assert [set(worker) for worker in workers] == [names | {"worker"}] * 2
    assert [worker["worker"] for worker in workers] == [A, B]


def test_table() -> None:
    """One head, one row per worker and one in total, columns in line."""
    report = summarize(SAMPLES, {A: 90, B: 60}, {}, [A, B])
    lines = table({"kv_cache_aware": report, "round_robin": report}).splitlines()
    rules = [number for number, line in enumerate(lines) if set(line) == {"-"}]
    assert rules == [1, 5]
    assert len(lines) == 1 + 2 * 4
    assert len({len(line.rstrip()) for line in lines}) == 1
    assert lines[0].split()[:2] == ["policy", "worker"]
    first, total = lines[2].split(), lines[4].split()
    assert first[:2] == ["kv_cache_aware", "127.0.0.1:1001"]
    assert total[:2] == ["kv_cache_aware", "total"]
    assert total[2:7] == ["11", "1,100", "150", "160", "14.5%"]
