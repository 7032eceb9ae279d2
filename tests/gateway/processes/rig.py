"""Several processes as a test sees them: started, asked on both ports, ended."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from render import Renderer
from simworker.options import SimOptions
from simworker.server import SimWorker
from tests.running import MODEL, free_port

WAIT_S = 40.0


def until(holds: Callable[[], Any], within_s: float = WAIT_S) -> Any:
    """Wait until it holds, and what it is then; or fail."""
    end = time.monotonic() + within_s
    while not (value := holds()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return value


@contextmanager
def workers(renderer: Renderer, *engines: str) -> Iterator[list[SimWorker]]:
    """Simulated workers that run in a thread, whatever the test waits for."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(WAIT_S)

    async def made(engine: str) -> None:
        options = SimOptions(
            engine=engine, port=0, speed=100.0, served_model_name=(MODEL,)
        )
        all_of_them.append(SimWorker(options, renderer))
        await all_of_them[-1].start()

    all_of_them: list[SimWorker] = []
    try:
        for engine in engines:
            run(made(engine))
        yield all_of_them
    finally:
        for worker in all_of_them:
            run(worker.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()


class Several:
    """A gateway of several processes."""

    def __init__(self, parent: "subprocess.Popen[str]", admin: int, log: Path) -> None:
        self.parent = parent
        self.operators = f"http://127.0.0.1:{admin}"
        self.url = ""
        self._log = log

    def wait_until_ready(self) -> None:
        """Read the one line that it says."""
        assert self.parent.stdout is not None
        line = self.parent.stdout.readline()
        ready = re.fullmatch(r"ready (http://127\.0\.0\.1:\d+)\n", line)
        assert ready, line + self.log
        self.url = ready[1]

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text()

    def page(self, path: str) -> Any:
        """A page for operators."""
        return asked(self.operators + path)[1]

    def pids(self) -> list[int | None]:
        """Of the processes that there are."""
        page = self.page("/gateway/workers")
        return [process["pid"] for process in page["processes"]]

    def chat(self, text: str) -> int:
        """The status of a chat, over a connection of its own."""
        body = {"model": MODEL, "max_tokens": 2,
                "messages": [{"role": "user", "content": 20 * text}]}  # fmt: skip
        return asked(f"{self.url}/v1/chat/completions", "POST", body)[0]


def asked(
    url: str, method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, Any]:
    """Status and answer: JSON as what it is, else text."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            status, text = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text.decode()


@contextmanager
def several(log: Path, *words: str) -> Iterator[Several]:
    """`kv-gateway --processes 2` until the end of the context."""
    admin = free_port()
    command = [
        sys.executable, "-m", "gateway", "--processes", "2", "--render", "never",
        "--host", "127.0.0.1", "--port", "0", "--admin-port", str(admin),
        "--drain-delay", "0", *words,
    ]  # fmt: skip
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as parent,
    ):
        try:
            running = Several(parent, admin, log)
            running.wait_until_ready()
            yield running
        finally:
            parent.kill()


def runs(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
