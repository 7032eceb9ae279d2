"""The workers file: what it may say, what not, and that its changes are followed."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.workers import monitor, workers_file
from gateway.workers.workers_file import read_workers
from router.worker import WorkerSpec
from tests.gateway.scripted import ANSWER, ask, worker
from tests.proxy.raw import RawWorker
from tests.running import Running, StartGateway, StartWorker, until

TOML = """
[[workers]]
url = "w1"
engine = "vllm"
[workers.kv_events]
0 = "tcp://w1:5557"

[[workers]]
url = "http://w2:9000"
model = "m"
"""
JSON = (
    '[{"url": "w1", "engine": "vllm", "kv_events": {"0": "tcp://w1:5557"}},'
    ' {"url": "http://w2:9000", "model": "m"}]'
)
SPECS = [
    WorkerSpec(url="http://w1:8000", engine="vllm", kv_events={0: "tcp://w1:5557"}),
    WorkerSpec(url="http://w2:9000", model="m"),
]


@pytest.mark.parametrize(
    ("name", "text", "specs"),
    [
        ("w.toml", TOML, SPECS),
        ("w.json", JSON, SPECS),
        ("w.json", f'{{"workers": {JSON}}}', SPECS),
        ("workers", JSON, SPECS),
        ("w.toml", 'workers = ["w1"]', [WorkerSpec(url="http://w1:8000")]),
        ("w.json", "[]", []),
        ("w.toml", '["w1"]', [WorkerSpec(url="http://w1:8000")]),
        ("w.toml", "# nobody", []),
        ("w.toml", "", []),
    ],
)
def test_both_formats(
    tmp_path: Path, name: str, text: str, specs: list[WorkerSpec]
) -> None:
    """TOML and JSON say the same; URLs are completed as on the command line."""
    path = tmp_path / name
    path.write_text(text)
    assert read_workers(path) == specs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "malformed"),
        ('{"workers": 1}', "no list of workers"),
        ('{"worker": ["w1"]}', "no list of workers"),
        ("[1]", "has no url"),
        ('[{"url": "w1"}, {"url": "http://w1:8000"}]', "more than once"),
        ('[{"url": "ftp://w1"}]', "ftp://w1"),
        ('[{"url": "w1", "modle": "m"}]', "no field 'modle'"),
        ('[{"url": "w1", "model": 1}]', "w1"),
        ('[{"url": "w1", "engine": "fast"}]', "engine is none of"),
        ('[{"url": "w1", "profile": "fast"}]', "profile is none of"),
        ('[{"url": "w1", "kv_events": {"0": "w1:5557"}}]', "kv_events"),
        ('[{"url": "w1", "kv_events": {"x": "tcp://w1:5557"}}]', "w1"),
        ("[" * 100_000, "w.json"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, said: str) -> None:
    """One line that names the file and the mistake."""
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_workers(path)
    assert said in str(refused.value)
    assert str(refused.value).startswith(f"--workers-file {path}: ")
    assert "\n" not in str(refused.value)


def test_no_file(tmp_path: Path) -> None:
    """Named, too."""
    with pytest.raises(ConfigError, match="No such file"):
        read_workers(tmp_path / "none.toml")


def known(gateway: Running) -> list[str]:
    """The URLs of its workers."""
    return [worker.url for worker in gateway.gateway.pool.workers]


async def test_a_worker_may_have_a_key_of_its_own(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """Sent with all that the gateway asks of it, and with nothing else."""
    key = tmp_path / "key"
    key.write_text("secret-1\n")
    path = tmp_path / "workers.json"
    async with worker(ANSWER) as asked:
        path.write_text(f'[{{"url": "{asked.url}", "api_key_file": "{key}"}}]')
        gateway = await start_gateway("http://127.0.0.1:1", workers_file=path)
        await ask(gateway)
    ours = [r for r in asked.requests if r.startswith(b"GET")]
    assert ours
    assert all(b"\r\nAuthorization: Bearer secret-1\r\n" in each for each in ours)
    assert not any(b"secret-1" in r for r in asked.requests if r.startswith(b"POST"))


async def test_a_key_is_read_again_when_its_file_changes(
    start_gateway: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever asks the worker; while it is not there all stays as it was.

    The workers file itself stays as it is, and so does the worker.
    """
    monkeypatch.setattr(workers_file, "LOOK_S", 0.02)
    monkeypatch.setattr(monitor, "REFRESH_S", 0.05)
    key, path = tmp_path / "key", tmp_path / "workers.json"
    key.write_text("secret-1")
    async with worker(ANSWER) as asked:
        path.write_text(f'[{{"url": "{asked.url}", "api_key_file": "{key}"}}]')
        gateway = await start_gateway(
            "http://127.0.0.1:1", workers_file=path, health_interval=0.05
        )
        known = gateway.gateway.pool.get(asked.url)
        assert known is not None
        key.unlink()
        await asyncio.sleep(0.1)
        assert known.api_key == "secret-1"
        key.write_text("secret-2")
        await until(lambda: known.api_key == "secret-2")
        for _ in range(2):  # the first time round some may be under way
            for connection in asked.connections:
                connection.requests.clear()
            for route in (b"GET /v1/models ", b"GET /health "):
                await until(partial(_asked, asked, route, b"secret-2"))
    assert [r for r in asked.requests if b"secret-1" in r] == []
    assert gateway.gateway.pool.get(asked.url) is known


async def test_a_pipe_is_read_once(
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`--workers-file <(command)`: nothing more is to come, which is no mistake."""
    monkeypatch.setattr(workers_file, "LOOK_S", 0.02)
    reading, writing = os.pipe()
    os.write(writing, b'["127.0.0.1:2"]')
    os.close(writing)
    path = Path(f"/dev/fd/{reading}")
    try:
        gateway = await start_gateway("http://127.0.0.1:1", workers_file=path)
        await asyncio.sleep(0.2)
        assert known(gateway) == ["http://127.0.0.1:1", "http://127.0.0.1:2"]
        assert "stay as they are" not in caplog.text
    finally:
        os.close(reading)


def _asked(worker: RawWorker, route: bytes, key: bytes) -> bool:
    """Whether it was asked for this with that key."""
    return any(r.startswith(route) and key in r for r in worker.requests)


@pytest.mark.parametrize("text", [None, "", "two words", "ä"])
def test_no_key(tmp_path: Path, text: str | None) -> None:
    """A mistake, as all others are."""
    key, path = tmp_path / "key", tmp_path / "workers.json"
    if text is not None:
        key.write_text(text)
    path.write_text(f'[{{"url": "w", "api_key_file": "{key}"}}]')
    with pytest.raises(ConfigError, match="http://w:8000: api_key_file: "):
        read_workers(path)


async def test_changes_are_followed(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Workers come and go with it; a mistake in it changes nothing; others stay."""
    monkeypatch.setattr(workers_file, "LOOK_S", 0.05)
    fixed, first, second = [await start_worker() for _ in range(3)]
    path = tmp_path / "workers.json"

    def write(text: str) -> None:
        beside = tmp_path / "new"
        beside.write_text(text)
        os.replace(beside, path)

    write(f'["{first.url}"]')
    gateway = await start_gateway(fixed, workers_file=path)
    assert known(gateway) == [fixed.url, first.url]

    async def follows(text: str, *urls: str) -> None:
        write(text)
        await until(lambda: known(gateway) == list(urls))

    await follows(f'["{first.url}", "{second.url}"]', fixed.url, first.url, second.url)
    added = gateway.gateway.pool.get(second.url)
    assert added is not None
    await until(lambda: added.state == "ready")
    await follows(f'["{second.url}"]', fixed.url, second.url)
    with caplog.at_level(logging.ERROR, logger="gateway.workers.workers_file"):
        write("[")
        await until(lambda: bool(caplog.messages))
        write(" \n")
        await until(lambda: caplog.messages[-1].endswith("is empty, not even a list"))
    assert known(gateway) == [fixed.url, second.url]
    await follows("[]", fixed.url)
    assert (await gateway.chat([{"role": "user", "content": "hi"}])).worker == fixed.url


async def test_a_file_that_is_being_written(
    start_gateway: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in it counts once nothing was added between two looks."""
    monkeypatch.setattr(workers_file, "LOOK_S", 0.02)
    path = tmp_path / "workers.toml"
    path.write_text(TOML)
    gateway = await start_gateway(workers_file=path)
    before, looks, still = known(gateway), list[int](), threading.Event()

    def state(paths: object) -> tuple[tuple[int], ...]:
        looks.append(0)
        return ((-1 if still.is_set() else len(looks),),)

    monkeypatch.setattr(workers_file, "state", state)
    path.write_text('[[workers]]\nurl = "http://127.0.0.1:1"\n')
    await until(lambda: len(looks) > 5)
    assert known(gateway) == before
    still.set()
    await until(lambda: known(gateway) == ["http://127.0.0.1:1"])


async def test_a_list_that_is_read_ten_times_leaves_no_task_behind(
    start_gateway: StartGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tasks: Callable[[], int],
) -> None:
    """Else old workers would be asked for ever.

    vllm-project/production-stack#680
    """
    monkeypatch.setattr(workers_file, "LOOK_S", 0.02)
    path = tmp_path / "workers.json"
    path.write_text("[]")
    gateway = await start_gateway("http://127.0.0.1:1", workers_file=path)
    before = tasks()
    for number in range(10):
        path.write_text(f'["127.0.0.1:{2 + number}", "127.0.0.1:{3 + number}"]')
        wanted = f"http://127.0.0.1:{3 + number}"
        await until(lambda wanted=wanted: wanted in known(gateway))  # type: ignore[misc]
    path.write_text("[]")
    await until(lambda: len(known(gateway)) == 1)
    await until(lambda: tasks() <= before)
