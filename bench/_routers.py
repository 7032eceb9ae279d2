"""The routers that `peers` compares: ours and the published ones, each as one process.

Each runs with its defaults but for what makes it route by prefix. The published ones
are installed each into an environment of its own.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from bench._environments import Requirements, python_of
from bench._processes import free_port
from simworker.model import demo_model_dir

OURS = "ours"
START_S, STOP_S = 90.0, 10.0
ANSWER_S = 10.0
LAUNCHER = (
    *("setproctitle", "fastapi", "orjson", "uvicorn", "requests", "pyyaml"),
    *("grpcio", "grpcio-health-checking", "aiohttp"),
)
"""What the published routers' launchers import; their other needs are not used."""


class NotRunning(Exception):
    """It did not start, or did not answer: why, in one line."""


class SimulatedWorker(msgspec.Struct, frozen=True):
    """A worker to route to: its URL, and where it publishes its KV events."""

    url: str
    events: str


class Router(msgspec.Struct, frozen=True, kw_only=True):
    """One way to route. `words` follow the interpreter of its environment."""

    name: str
    words: Sequence[str]
    requirements: Requirements | None = None
    """None: it is ours."""
    metrics_port: str | None = None
    """The option of a second port, which must be free too."""
    event_sources: bool = False
    """It is told where each worker publishes its KV events."""
    worker_events: bool = True
    """The workers publish KV events at all."""

    def command(
        self, python: str, workers: Sequence[SimulatedWorker], port: int
    ) -> list[str]:
        """The whole command line."""
        command = [python, *self.words, "--host", "127.0.0.1", "--port", str(port)]
        urls = [worker.url for worker in workers]
        if self.requirements is None:
            return [*command, "--workers", ",".join(urls)]
        command += ["--worker-urls", *urls]
        if self.metrics_port is not None:
            command += [self.metrics_port, str(free_port())]
        if self.event_sources:
            for worker in workers:
                command += ["--kv-event-source", f"{worker.url}={worker.events}"]
        return command


def _published(name: str, version: str) -> Requirements:
    return Requirements(name, packages=LAUNCHER, alone=(f"{name}=={version}",))


def routers(model: str) -> list[Router]:
    """All of them, ours first; `model` is the name that requests give."""
    ours = ("-m", "gateway", "--model", str(demo_model_dir()), "--log-level", "warning")
    smg = _published("smg", "1.13.0")
    sglang = _published("sglang-router", "0.3.2")
    vllm = _published("vllm-router", "0.1.17")
    metrics = "--prometheus-port"
    return [
        Router(name=f"{OURS}, with events", words=ours),
        Router(name=f"{OURS}, without events", words=ours, worker_events=False),
        Router(name="smg 1.13.0, cache_aware", requirements=smg, metrics_port=metrics,
               words=("-m", "smg", "launch", "--policy", "cache_aware")),
        Router(name="sglang-router 0.3.2, cache_aware", requirements=sglang,
               words=("-m", "sglang_router.launch_router", "--policy", "cache_aware"),
               metrics_port=metrics),
        Router(name="vllm-router 0.1.17, cache_aware", requirements=vllm,
               words=("-m", "vllm_router.launch_router", "--policy", "cache_aware"),
               metrics_port=metrics),
        Router(name="vllm-router 0.1.17, kv_aware", requirements=vllm,
               words=("-m", "vllm_router.launch_router", "--policy", "kv_aware",
                      "--kv-event-model", model),
               metrics_port=metrics, event_sources=True),
    ]  # fmt: skip


@contextlib.contextmanager
def started(
    router: Router, python: str, workers: Sequence[SimulatedWorker], body: bytes
) -> Iterator[tuple[int, str]]:
    """Its (pid, URL) once it answers the chat `body`. Raises NotRunning."""
    port = free_port()
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = subprocess.Popen(
            router.command(python, workers, port),
            stdout=said, stderr=said, start_new_session=True,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_it_answers(process, url, body, said)
            yield process.pid, url
        finally:
            _end(process)


def _wait_until_it_answers(
    process: "subprocess.Popen[bytes]", url: str, body: bytes, said: TextIO
) -> None:
    last, why = time.monotonic() + START_S, "it said nothing"
    while time.monotonic() < last:
        if process.poll() is not None:
            said.seek(0)
            lines = said.read().strip().splitlines() or ["without a word"]
            raise NotRunning(f"ended with {process.returncode}: {lines[-1]}")
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                answer.read()
                return
        except urllib.error.HTTPError as error:
            why = f"{error.code}: {error.read(200).decode(errors='replace')}"
        except (OSError, ValueError) as error:
            why = str(error)
        time.sleep(0.2)
    raise NotRunning(f"no answer in {START_S:.0f} s; the last: {why}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def interpreter(router: Router, environments: Path) -> str:
    """The interpreter that runs it. Raises NotInstalled."""
    if router.requirements is None:
        return sys.executable
    return str(python_of(environments, router.requirements))
