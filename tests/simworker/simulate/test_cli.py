"""The command: what it prints, where, and its exit status."""

import json
from pathlib import Path

import pytest

from gateway.cli import main
from router import POLICIES

KEYS = [
    "policy", "requests", "success_rate", "hit_rate", "ceiling", "ttft_mean_s",
    "ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "output_tokens_s", "imbalance",
    "decisions_s",
]  # fmt: skip


def test_one_policy_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON on stdout, with these keys in this order."""
    assert main(["simulate", "--limit", "30", "--block-size", "64"]) == 0
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    outcome = json.loads(line)
    assert list(outcome) == KEYS
    assert (outcome["policy"], outcome["requests"]) == ("kv_cache_aware", 30)
    assert printed.err.startswith("kv_cache_aware: 30 requests in ")


def test_comparing_is_a_line_for_each_and_a_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The table is for people: on stderr."""
    words = ["--format", "synthetic:no-sharing", "--limit", "30", "--compare"]
    assert main(["simulate", *words]) == 0
    printed = capsys.readouterr()
    outcomes = [json.loads(line) for line in printed.out.splitlines()]
    assert [outcome["policy"] for outcome in outcomes] == list(POLICIES)
    table = printed.err.splitlines()[len(POLICIES) :]
    assert table[0] == "30 requests, hit rate at best 0.0%"
    assert table[1].split()[:3] == ["policy", "hit", "rate"]
    assert [row.split()[0] for row in table[2:]] == list(POLICIES)


def test_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of Mooncake's kind, twice as fast."""
    trace = tmp_path / "trace.jsonl"
    row = {"input_length": 1024, "output_length": 2, "hash_ids": [1, 2]}
    rows = [json.dumps({"timestamp": 1000 * n} | row) for n in range(3)]
    trace.write_text("\n".join(rows))
    words = ["--trace", str(trace), "--format", "mooncake", "--arrival-scale", "2"]
    assert main(["simulate", *words]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["hit_rate"] == outcome["ceiling"] > 0.6
    assert outcome["output_tokens_s"] == 6 // 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--format mooncake", "--format mooncake needs --trace FILE"),
        ("--trace x", "--trace FILE needs --format mooncake or azure"),
        ("--format azure --trace {dir}/missing", "{dir}/missing: No such file"),
        ("--format azure --trace {dir}", "{dir}: Is a directory"),
        ("--fault slow:8=2", "--fault names worker 8"),
        ("--limit 9 --prefill-rate 1e-9", "it would take more than 1e+12 s"),
        ("--limit 9 --arrival-scale 1e-300", "it would take more than 1e+12 s"),
        ("--limit 9 --prefill-cost 1e300", "it would take more than 1e+12 s"),
        ("--fault restart:0@9999999999999", "it would take more than 1e+12 s"),
    ],
)
def test_what_cannot_be_replayed(
    words: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr, status 2, nothing on stdout."""
    given = words.format(dir=tmp_path).split()
    assert main(["simulate", *given]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith(f"kv-gateway simulate: {says.format(dir=tmp_path)}")


@pytest.mark.parametrize(
    "words",
    [
        "--workers 0", "--workers x", "--workers 100000", "--cache-tokens -1",
        "--block-size 1.5", "--policy best", "--format csv", "--format synthetic:x",
        "--arrival-scale 0", "--arrival-scale nan", "--prefill-rate -3",
        "--decode-rate 1e-10", "--event-delay -1", "--limit 0",
        "--fault fire", "--seed x", "--nonsense",
    ],
)  # fmt: skip
def test_options_that_are_none(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr that names the option, and status 2."""
    with pytest.raises(SystemExit) as exit:
        main(["simulate", *words.split()])
    assert exit.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("kv-gateway")
    assert words.split()[0] in line
