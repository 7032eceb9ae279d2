"""The comparison of policies: run in parts, its tables, its aims."""

from pathlib import Path

import pytest

from bench import policies
from bench._policy_results import Key, Results
from bench._policy_tables import Mean, misses, overview, ratios, table
from simworker.simulate.options import SimulateOptions
from simworker.simulate.replay import Outcome


def outcome(policy: str, **changes: float) -> Outcome:
    """Of a policy on some workload."""
    figures = {"ttft_mean_s": 0.1, "ttft_p90_s": 0.2, "success_rate": 1.0, **changes}
    return Outcome(
        policy=policy,
        requests=10,
        hit_rate=0.5,
        ceiling=0.9,
        ttft_p50_s=0.1,
        ttft_p99_s=0.3,
        output_tokens_s=100,
        imbalance=1.0,
        decisions_s=1000,
        **figures,
    )


def figures(mean_s: float, p90_s: float = 0.2, success_rate: float = 1.0) -> Mean:
    """Averages of a policy."""
    return Mean(success_rate, 0.5, 0.9, mean_s, p90_s, 1.0)


def key(policy: str, seed: int = 0) -> Key:
    """One replay."""
    return Key("at once", 64, "chat4", seed, policy)


def test_results_are_kept(tmp_path: Path) -> None:
    """What is in the file need not be replayed; the last line of a replay counts."""
    path = tmp_path / "results.jsonl"
    results = Results(path)
    results.add(key("random"), outcome("random", ttft_mean_s=0.5))
    results.add(key("random"), outcome("random", ttft_mean_s=0.7))
    results.add(key("session"), outcome("session"))
    again = Results(path, again=("session",))
    assert again[key("random")].ttft_mean_s == 0.7
    assert key("session") not in again
    assert key("random", seed=1) not in again


def test_without_a_file_nothing_is_kept() -> None:
    """They are there until the end."""
    results = Results(None)
    results.add(key("random"), outcome("random"))
    assert key("random") in results


def test_aims() -> None:
    """Within 1 % or 1 ms of least_loaded, within 5 % or 5 ms of any other policy."""
    ours = {"kv_cache_aware": figures(0.1)}
    assert misses("w", ours | {"least_loaded": figures(0.0991)}) == []
    assert misses("w", ours | {"least_loaded": figures(0.0985)}) == [
        "w: ttft_mean_s 0.1000, least_loaded 0.0985"
    ]
    assert misses("w", ours | {"session": figures(0.0953)}) == []
    assert misses("w", ours | {"session": figures(0.1, p90_s=0.18)}) == [
        "w: ttft_p90_s 0.2000, session 0.1800"
    ]
    assert misses("w", {"kv_cache_aware": figures(0.1, success_rate=0.99)}) == [
        "w: 1.00% failed"
    ]
    assert misses("w", {"session": figures(0.1)}) == []


def test_tables() -> None:
    """A workload's, one of all, and the geometric means of ours over theirs."""
    results = {
        "a": {"kv_cache_aware": figures(0.1), "random": figures(0.2)},
        "b": {"kv_cache_aware": figures(0.4), "random": figures(0.2, p90_s=0.8)},
    }
    assert "| random | 50.0% | 0.2000 | 0.2000 | 1.00 | 100.0% |" in table(
        "a", results["a"]
    )
    assert "| random | 200 / 200 | 200 / 800 |" in overview(results)
    assert "| random | 1.000 | 0.500 |" in ratios(results)


def test_a_run_in_parts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second part replays only what the first has not."""
    few = SimulateOptions(format="synthetic:chat4", block_size=64, limit=60)
    monkeypatch.setattr(policies, "workloads", lambda _: {"chat4": few})
    path = tmp_path / "results.jsonl"
    words = ["--jobs", "1", "--seeds", "1", "--results", str(path), "--policies"]
    for names, lines in (("random", 1), ("random,kv_cache_aware", 2), ("random", 2)):
        with pytest.raises(SystemExit) as ended:
            policies.run([*words, names])
        assert ended.value.code == 0
        assert len(path.read_text().splitlines()) == lines
    assert "### chat4" in capsys.readouterr().out


def test_unknown_names() -> None:
    """Say which there are."""
    with pytest.raises(SystemExit, match="no workload nonsense; there are: b2b, chat4"):
        policies.run(["--workloads", "nonsense"])
    with pytest.raises(SystemExit):
        policies.run(["--policies", "nonsense"])
