"""`kv-gateway demo`, small: real processes, a table, the figures as JSON."""

import argparse
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from simworker.demo import FULL_SCALE, MODEL, POLICIES, Scale, add_arguments, run
from simworker.workload import Shape, generate, request_count

TINY = Scale(
    workers=2,
    sessions=4,
    shape=Shape(
        products=2, turns=(2, 3), log_lines=(2, 4), max_tokens=(4, 8),
        arrival_s=0.3, gap_s=0.05,
    ),
    worker_options=("--speed", "50", "--blocks", "2048"),
)  # fmt: skip
REQUESTS = request_count(generate(TINY.seed, TINY.sessions, TINY.shape))


@pytest.fixture(autouse=True)
def _small_model(small_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the built-in one; ten processes load it."""
    monkeypatch.setattr("simworker.demo.demo_model_dir", lambda: small_model_dir)


def demo(*words: str, scale: Scale = TINY) -> int:
    """The exit status of a demo."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(words), scale)


ALONE = msgspec.structs.replace(TINY, workers=1)
PROGRAM = """
import sys
import simworker.demo
from tests.simworker.test_demo import ALONE, demo
model = sys.argv.pop()
simworker.demo.demo_model_dir = lambda: model
sys.exit(demo(*sys.argv[1:], scale=ALONE))
"""


def test_a_small_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both policies over fresh workers; what is printed and written agrees."""
    file = tmp_path / "figures.json"
    assert demo("--exit", "--port", "0", "--json", str(file)) == 0
    output = capsys.readouterr()
    assert output.err == ""
    figures = json.loads(file.read_text())
    assert list(figures) == list(POLICIES)
    for policy in POLICIES:
        totals, workers = figures[policy]["totals"], figures[policy]["workers"]
        assert totals["requests"] == REQUESTS
        assert len(workers) == TINY.workers
        for name in ("requests", "prompt_tokens", "delivered_hit_tokens",
                     "predicted_hit_tokens"):  # fmt: skip
            assert totals[name] == sum(worker[name] for worker in workers)
        assert 0 < totals["delivered_hit_tokens"] < totals["prompt_tokens"]
        assert 0 < totals["ttft_mean_s"] <= totals["ttft_p90_s"] * 2
        assert f"{totals['prompt_tokens']:,}" in output.out
    aware, robin = (figures[policy]["totals"] for policy in POLICIES)
    assert aware["delivered_hit_tokens"] >= robin["delivered_hit_tokens"]
    assert "of the prompt tokens in a cache" in output.out


def test_serves_until_ctrl_c(small_model_dir: Path, tmp_path: Path) -> None:
    """Without events, and without --exit: it serves until Ctrl-C, then all ends."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    file = tmp_path / "figures.json"
    words = ("--port", str(port), "--no-kv-events", "--json", str(file))
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words, str(small_model_dir)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if f"keeps serving at {url} until Ctrl-C" in line:
                break
        with urllib.request.urlopen(url + "/gateway/workers", timeout=5) as response:
            (worker,) = json.load(response)["workers"]
        assert worker["state"] == "ready"
        assert [feed["state"] for feed in worker["feeds"]] == ["estimated"]
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(10) == 0
    (curl,) = re.findall(r"curl (\S+/v1/chat/completions) .* -d '(.*)'", rest)
    assert curl[0] == url + "/v1/chat/completions"
    assert json.loads(curl[1])["model"] == MODEL
    assert json.loads(file.read_text())["round_robin"]["totals"]["requests"] == REQUESTS
    for gone in (url, worker["url"]):
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(gone + "/health", timeout=5)


def test_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, status 2, and nothing left running."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert demo("--exit", "--port", str(port)) == 2
    output = capsys.readouterr()
    assert output.err.count("\n") == 1
    assert f"--port {port}: Address already in use" in output.err


def test_a_port_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """What no port can be is refused before anything starts."""
    assert demo("--exit", "--port", "70000") == 2
    assert "--port 70000" in capsys.readouterr().err


def test_a_file_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is known before the traffic, not after."""
    assert demo("--exit", "--json", str(tmp_path / "no" / "file")) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert "No such file" in output.err


def test_the_full_size_is_the_promised_one() -> None:
    """Three workers, and enough chats to tell the policies apart."""
    assert FULL_SCALE.workers == 3
    assert request_count(generate(FULL_SCALE.seed, FULL_SCALE.sessions)) > 200
