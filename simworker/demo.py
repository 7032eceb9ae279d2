"""`kv-gateway demo`: simulated workers, a gateway, traffic, a table of two policies.

Everything is a real process on this machine, started as a user would start it; only
the workers' GPUs are simulated.
"""

import argparse
import asyncio
import re
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp
import msgspec

from simworker.fleet import Fleet, StartFailed
from simworker.model import NAME, demo_model_dir
from simworker.report import PolicyReport, summarize, table
from simworker.traffic import TrafficFailed, drive
from simworker.workload import (
    DEFAULT_SHAPE,
    Session,
    Shape,
    generate,
    request_count,
)

MODEL = NAME
POLICIES = ("kv_cache_aware", "round_robin")
BAR = 40
STOPPED_STATUS = 130


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How large a demo is: the fleet, each worker's options, the traffic."""

    workers: int = 3
    sessions: int = 48
    seed: int = 20
    shape: Shape = DEFAULT_SHAPE
    worker_options: tuple[str, ...] = (
        "--prefill-rate", "10000", "--decode-rate", "120", "--blocks", "2560",
    )  # fmt: skip


FULL_SCALE = Scale()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `demo` to `parser`."""
    parser.add_argument("--port", type=int, default=8080, metavar="N",
                        help="port of the gateway (default: %(default)s)")  # fmt: skip
    parser.add_argument("--exit", action="store_true", help="end after the table")
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="also write the figures to FILE")  # fmt: skip
    parser.add_argument("--no-kv-events", dest="kv_events", action="store_false",
                        help="workers publish no events, as engines ship")  # fmt: skip


def run(arguments: argparse.Namespace, scale: Scale = FULL_SCALE) -> int:
    """Run the demo; the exit status: 2 where something cannot start, 1 if it fails."""
    try:
        if arguments.json is not None:
            arguments.json.touch()  # known now, not after the traffic
        return asyncio.run(_demo(arguments, scale))
    except (StartFailed, OSError) as error:
        sys.stderr.write(f"kv-gateway demo: {error}\n")
        return 2
    except TrafficFailed as error:
        sys.stderr.write(f"kv-gateway demo: {error}\n")
        return 1


async def _demo(arguments: argparse.Namespace, scale: Scale) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    me = asyncio.current_task()
    assert me is not None  # noqa: S101 - this is a task
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop(stopped, me))
    _check_port(arguments.port)
    fleet = Fleet()
    try:
        await _compare(fleet, arguments, scale)
        if not arguments.exit:
            _invite(f"http://127.0.0.1:{arguments.port}")
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        if not stopped.is_set():
            raise
    finally:
        await fleet.stop()
    return STOPPED_STATUS if stopped.is_set() and arguments.exit else 0


def _check_port(port: int) -> None:
    """Say at once what the gateway would say only when all workers run. StartFailed."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise StartFailed(f"--port {port}: {reason}") from None


def _stop(stopped: asyncio.Event, task: "asyncio.Task[object]") -> Callable[[], None]:
    def stop() -> None:
        if not stopped.is_set():
            stopped.set()
            task.cancel()

    return stop


async def _compare(fleet: Fleet, arguments: argparse.Namespace, scale: Scale) -> None:
    """The same traffic under each policy, each with fresh workers; print the table."""
    model = str(demo_model_dir())
    sessions = generate(scale.seed, scale.sessions, scale.shape)
    reports: dict[str, PolicyReport] = {}
    for policy in POLICIES:
        port = arguments.port if policy == POLICIES[0] else 0
        events = () if arguments.kv_events else ("--no-kv-events",)
        words = (*_worker_words(model), *scale.worker_options, *events)
        workers = await _start_workers(fleet, policy, scale.workers, words)
        gateway = await fleet.start(
            f"gateway-{policy}",
            ["serve", "--workers", ",".join(workers), "--model", model,
             "--policy", policy, "--host", "127.0.0.1", "--port", str(port)],
        )  # fmt: skip
        reports[policy] = await _measure(gateway, policy, sessions, workers)
    sys.stdout.write(f"\n{table(reports)}\n\n{_verdict(reports)}\n")
    sys.stdout.flush()
    if arguments.json is not None:
        figures = {name: report.to_json() for name, report in reports.items()}
        text = msgspec.json.format(msgspec.json.encode(figures), indent=2)
        arguments.json.write_bytes(text + b"\n")


def _worker_words(model: str) -> tuple[str, ...]:
    return ("sim-worker", "--engine", "vllm", "--model", model, "--port", "0",
            "--served-model-name", MODEL)  # fmt: skip


async def _start_workers(
    fleet: Fleet, policy: str, count: int, words: Sequence[str]
) -> list[str]:
    sys.stdout.write(f"{policy}: starting {count} simulated workers and a gateway\n")
    sys.stdout.flush()
    return await fleet.start_all(
        {f"worker-{policy}-{number}": words for number in range(count)}
    )


async def _measure(
    gateway: str, policy: str, sessions: Sequence[Session], workers: Sequence[str]
) -> PolicyReport:
    progress = _Progress(policy, request_count(sessions))
    samples = await drive(gateway, MODEL, sessions, progress.step)
    progress.end()
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"{gateway}/metrics") as response,
    ):
        page = await response.text()
    predicted = _by_worker(page, "predicted_hit_tokens")
    errors = _by_worker(page, "prediction_error_tokens")
    return summarize(samples, predicted, errors, workers)


def _by_worker(page: str, name: str) -> dict[str, int]:
    """A counter of the gateway's metrics page, by worker."""
    pattern = rf'^kv_gateway_{name}_total\{{worker="([^"]+)"\}} (\S+)$'
    found = re.findall(pattern, page, re.MULTILINE)
    return {url: int(float(value)) for url, value in found}


def _verdict(reports: dict[str, PolicyReport]) -> str:
    aware, robin = (reports[name].totals for name in POLICIES)
    rates = [t.delivered_hit_tokens / max(1, t.prompt_tokens) for t in (aware, robin)]
    faster = robin.ttft_mean_s / aware.ttft_mean_s if aware.ttft_mean_s else 0.0
    return (
        f"kv_cache_aware found {rates[0]:.0%} of the prompt tokens in a cache, "
        f"round_robin {rates[1]:.0%}: the first token came {faster:.1f} times sooner."
    )


class _Progress:
    """A bar on a terminal, a few lines elsewhere."""

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._count = 0
        self._live = sys.stdout.isatty()

    def step(self) -> None:
        self._count += 1
        if self._live:
            full = BAR * self._count // self._total
            bar = "#" * full + "." * (BAR - full)
            sys.stdout.write(f"\r{self._name} [{bar}] {self._count}/{self._total}")
        elif self._count * 4 // self._total != (self._count - 1) * 4 // self._total:
            sys.stdout.write(f"{self._name} {self._count}/{self._total}\n")
        sys.stdout.flush()

    def end(self) -> None:
        if self._live:
            sys.stdout.write("\n")


def _invite(url: str) -> None:
    body = (
        f'{{"model": "{MODEL}", "max_tokens": 30, '
        '"messages": [{"role": "user", "content": "hello"}]}'
    )
    sys.stdout.write(
        f"\nThe kv_cache_aware gateway keeps serving at {url} until Ctrl-C. Try:\n\n"
        f"  curl {url}/v1/chat/completions -H 'content-type: application/json' "
        f"-d '{body}'\n"
        f"  {url}/gateway/ in a browser\n"
        f"  curl {url}/gateway/workers\n"
        f"  curl -s {url}/metrics | grep hit_tokens\n"
    )
    sys.stdout.flush()
