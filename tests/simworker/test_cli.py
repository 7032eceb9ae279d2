"""`sim-worker` as a process: ready line, signals, and what it refuses."""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from simworker.arguments import add_arguments, from_args
from simworker.options import BadOptions, SimOptions

MAIN = (
    "import argparse, sys\n"
    "from simworker.cli import add_arguments, run\n"
    "parser = argparse.ArgumentParser()\n"
    "add_arguments(parser)\n"
    "sys.exit(run(parser.parse_args()))\n"
)


def start(*words: str, cache: Path) -> subprocess.Popen[str]:
    """`sim-worker` with these arguments."""
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
    )


def parsed(*words: str) -> SimOptions:
    """The options of a command line."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return from_args(parser.parse_args(words))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the built-in model is unpacked, once for all."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    ("engine", "number", "built_in"),
    [
        ("vllm", signal.SIGTERM, True),
        ("vllm", signal.SIGINT, False),
        ("trtllm", signal.SIGTERM, False),
        ("sglang", signal.SIGTERM, False),
    ],
)
def test_serves_until_a_signal(
    cache: Path,
    small_model_dir: Path,
    engine: str,
    number: signal.Signals,
    built_in: bool,
) -> None:
    """One ready line on stdout, answers, and a clean end; once with its own model."""
    model = () if built_in else ("--model", str(small_model_dir))
    words = ("--engine", engine, "--port", "0", *model)
    with start(*words, cache=cache) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"ready (http://127\.0\.0\.1:\d+)\n", line)
        assert found
        with urllib.request.urlopen(found[1] + "/health", timeout=5) as response:
            assert response.status == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_signal_ends_it_whatever_is_planned(
    cache: Path, small_model_dir: Path
) -> None:
    """Many long answers are planned in a thread that nobody can stop."""
    model = ("--model", str(small_model_dir), "--served-model-name", "m")
    body = {"prompt": ["a"] * 4096, "max_tokens": 2000, "ignore_eos": True}
    with start("--port", "0", *model, cache=cache) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        asked = urllib.request.Request(
            url + "/v1/completions",
            data=json.dumps({"model": "m", **body}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(asked, timeout=3)
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=8)
        finally:
            process.kill()
    assert process.returncode == 0


def test_a_port_in_use(cache: Path, small_model_dir: Path) -> None:
    """One clear line, status 2; the same for the port of the events."""
    model = ("--model", str(small_model_dir))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words in (["--port", port], ["--port", "0", "--kv-events-port", port]):
            with start(*words, *model, cache=cache) as process:
                out, err = process.communicate(timeout=30)
            assert (process.returncode, out) == (2, "")
            assert err.startswith("kv-gateway sim-worker: ")
            assert "in use" in err
            assert port in err
            assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "/no/such/directory"],
        ["--answers", "/no/such/file"],
        ["--blocks", "1"],
        ["--speed", "0"],
    ],
)
def test_what_cannot_start(cache: Path, words: list[str]) -> None:
    """One clear line and status 2."""
    with start("--port", "0", *words, cache=cache) as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1)
    assert words[1] in err or words[0] in err


def test_defaults() -> None:
    """No arguments give the record's defaults."""
    assert parsed() == SimOptions()


def test_all_options() -> None:
    """Every option reaches its field."""
    options = parsed(
        "--engine", "vllm", "--model", "/m", "--port", "9", "--block-size", "32",
        "--blocks", "64", "--prefill-rate", "1e4", "--decode-rate", "20",
        "--max-running", "4", "--speed", "2.5", "--kv-events-port", "5557",
        "--replay-port", "5657", "--host", "::1", "--served-model-name", "a", "b",
        "--lora-modules", "x=/x", "--no-kv-events", "--no-prompt-tokens-details",
        "--hash-algo", "sha256_cbor", "--hash-seed", "0", "--bytes-hashes",
        "--legacy-replay", "--dev-mode", "--answers", "f", "--max-model-len", "99",
        "--kv-events-topic", "t", "--max-num-batched-tokens", "512",
        "--chat-template", "c", "--render-fingerprint", "missing",
        "--render-fingerprint-file", "g",
    )  # fmt: skip
    assert options == SimOptions(
        engine="vllm", model="/m", port=9, block_size=32, blocks=64, prefill_rate=1e4,
        decode_rate=20.0, max_running=4, speed=2.5, kv_events_port=5557,
        replay_port=5657, host="::1", served_model_name=("a", "b"),
        lora_modules=("x=/x",), kv_events=False, prompt_tokens_details=False,
        hash_algo="sha256_cbor", hash_seed="0", bytes_hashes=True, legacy_replay=True,
        dev_mode=True, answers="f", max_model_len=99, kv_events_topic="t",
        max_num_batched_tokens=512, chat_template="c", render_fingerprint="missing",
        render_fingerprint_file="g",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--blocks", "1"], "--blocks must be at least 2"),
        (["--blocks", "10000000000"], "--blocks must be at most 4194304"),
        (["--block-size", "0"], "--block-size"),
        (["--served-model-name", ""], "--served-model-name"),
        (["--decode-rate", "1e-320"], "--decode-rate must be at least 0.001"),
        (["--port", "70000"], "--port"),
        (["--replay-port", "-1"], "--replay-port"),
        (["--speed", "nan"], "--speed"),
        (["--decode-rate", "inf"], "--decode-rate"),
    ],
)
def test_values_that_make_no_sense(words: list[str], option: str) -> None:
    """The message names the option."""
    with pytest.raises(BadOptions, match=option):
        parsed(*words)
