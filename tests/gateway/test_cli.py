"""The command line: what it refuses, in one line with status 2, and what it does."""

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.request
from importlib.metadata import version
from pathlib import Path

import pytest

from gateway.cli import main
from tests.gateway.command import refused, serving
from tests.proxy.raw import (
    SSE_HEAD,
    RawClient,
    RawWorker,
    WorkerConnection,
    chunk,
    event,
)

DEAD = "127.0.0.1:1"
VERSION = version("kv-gateway")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--workers"),
        (("serve",), "--workers"),
        (("--workers", ""), "--workers ''"),
        (("--workers", "ftp://x"), "--workers 'ftp://x'"),
        (("--workers", "http://w1:8000/v1"), "leave out /v1"),
        (("--workers", "w1\nw2"), "--workers"),
        (("--workers", DEAD, "--port", "http"), "--port 'http'"),
        (("--workers", DEAD, "--port", "70000"), "--port '70000'"),
        (("--workers", DEAD, "--nonsense"), "--nonsense (see kv-gateway serve --help)"),
        (("doctor", "--nonsense"), "--nonsense (see kv-gateway doctor --help)"),
        (("--workers", DEAD, "--work", "x"), "--work"),
        (("--workers", DEAD, "extra"), "extra"),
        (("--workers", DEAD, "--policy", "best"), "--policy 'best'"),
        (("--workers", DEAD, "--model", "/no/such/model"), "/no/such/model"),
        (("--workers", DEAD, "--model", "nobody/nothing"), "nobody/nothing"),
        (("--workers", DEAD, "--model", "a", "--model", "b"), "--model"),
        (("--workers", DEAD, "--kv-events", "w9=tcp://w9:1"), "--kv-events"),
        (("--workers", DEAD, "--chat-template", "/no/such"), "'/no/such': is no file"),
        (("--workers", DEAD, "--admin-key", ""), "--admin-key ''"),
        (("serve", "--workers"), "--workers"),
        (("dmo",), "dmo"),
    ],
)  # fmt: skip
def test_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """One line on stderr that names the mistake; status 2."""
    assert said in refused(capsys, *words)


def test_a_model_without_tokenizer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A directory that is no model names what it lacks."""
    line = refused(capsys, "--workers", DEAD, "--model", str(tmp_path))
    assert "tokenizer.json" in line
    assert str(tmp_path) in line


def test_a_broken_tokenizer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A tokenizer that cannot be read is one line, too."""
    (tmp_path / "tokenizer.json").write_text("{")
    assert str(tmp_path) in refused(capsys, "--workers", DEAD, "--model", str(tmp_path))


def test_port_in_use(capsys: pytest.CaptureFixture[str], busy_port: int) -> None:
    """The port is named."""
    words = ("--workers", DEAD, "--host", "127.0.0.1", "--port", str(busy_port))
    assert f"127.0.0.1:{busy_port} is in use" in refused(capsys, *words)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.77"])
def test_an_address_that_is_not_ours(
    capsys: pytest.CaptureFixture[str], host: str
) -> None:
    """What cannot be listened on is named."""
    line = refused(capsys, "--workers", DEAD, "--host", host, "--port", "0")
    assert f"cannot listen on {host}" in line


def test_environment_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad variable is called by its name."""
    monkeypatch.setenv("KV_GATEWAY_PORT", "http")
    line = refused(capsys, "--workers", DEAD)
    assert "KV_GATEWAY_PORT 'http'" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--version",), VERSION),
        (("--help",), "kv-gateway serve --help"),
        (("serve", "--help"), "--index-memory"),
        (("render", "--help"), "--served-model-name"),
        (("demo", "--help"), "--no-kv-events"),
        (("key", "--help"), "<NAME> in the environment.\n"),
        (("sim-worker", "--help"), "--answers"),
    ],
)
def test_help(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """Help goes to stdout, with status 0."""
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    output = capsys.readouterr()
    assert said in output.out
    assert output.err == ""


def test_simulated_commands_are_imported_for_themselves_only() -> None:
    """Serving imports nothing of the simulator."""
    code = (
        "import sys, gateway.serve, gateway.cli; gateway.cli.parser('serve'); "
        "sys.exit(any(name.startswith('simworker') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=50).returncode == 0


async def _endless(connection: WorkerConnection) -> None:
    while request := await connection.request():
        if not request.startswith(b"POST"):
            await connection.send(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
            continue
        await connection.send(SSE_HEAD + chunk(event(0)))
        await connection.closed_by_peer()
        return


async def test_sigterm_ends_it_well() -> None:
    """One ready line; status 0 soon after the signal, though a stream is open."""
    async with RawWorker(_endless) as worker:
        words = ("--workers", worker.url, "--host", "127.0.0.1", "--port", "0")
        context = serving(*words, "--drain-delay", "0", "--drain-timeout", "0.2")
        process, url = await asyncio.to_thread(context.__enter__)
        with process:
            async with RawClient(int(url.rpartition(":")[2])) as client:
                await client.post(b'{"stream": true, "messages": []}')
                head = await client.head()
                assert head.startswith(b"HTTP/1.1 200")
                process.terminate()
                await client.rest()
            begun = time.monotonic()
            assert process.wait(5) == 0
            assert time.monotonic() - begun < 4
            assert process.stderr is not None
            assert "Traceback" not in process.stderr.read()


def test_variables_instead_of_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything can be set in the environment, as in a container."""
    settings = {"WORKERS": DEAD, "HOST": "127.0.0.1", "PORT": "0", "MODEL": ""}
    for name, value in settings.items():
        monkeypatch.setenv(f"KV_GATEWAY_{name}", value)
    with serving() as (process, url):
        with urllib.request.urlopen(url + "/gateway/workers", timeout=5) as response:
            (worker,) = json.load(response)["workers"]
        assert worker["url"] == f"http://{DEAD}"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
