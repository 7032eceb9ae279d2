"""Three gateways over one fleet: their hit rate beside one's, and when one is killed.

The same chats are held with one gateway, with three among which each request is
spread at random, and with three of which one is killed on the way and replaced by one
that knows nothing: before workers that replay their events to it, and before others.
Gateways share nothing but the workers.
"""

import argparse
import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench._machine import machine
from bench._processes import running
from bench._replica_traffic import Traffic, hit_rate
from bench._replica_verdict import LIMIT_S, POINTS, faults, recovered_s, windows
from simworker.model import NAME, demo_model_dir
from simworker.workload import Session, Shape, generate, request_count

LEVEL_S = 15.0
Started = tuple[int, str]
"""Pid and URL."""


def run(argv: Sequence[str]) -> None:
    """Print hit rates and what clients saw of a kill; SystemExit where it is too much.

    That is: the hit rate of several gateways is not that of one, or takes over 30 s to
    be so again after a kill, or clients saw anything but connections that broke.
    """
    parser = argparse.ArgumentParser(prog="python -m bench replicas",
                                     description=__doc__)  # fmt: skip
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--gateways", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=120)
    parser.add_argument("--seconds", type=float, default=60.0,
                        help="over which sessions begin")  # fmt: skip
    parser.add_argument("--seed", type=int, default=20)
    options = parser.parse_args(argv)
    shape = Shape(products=6, arrival_s=options.seconds)
    sessions = generate(options.seed, options.sessions, shape)
    print(machine())
    print(f"{options.workers} simulated vLLM workers, {options.sessions} chats, "
          f"{request_count(sessions)} requests")  # fmt: skip
    kill_s = options.seconds / 3
    fleet = options.workers, options.gateways
    one = _measure(options.workers, 1, sessions)
    several = _measure(*fleet, sessions)
    killed = {
        "replayed": _measure(*fleet, sessions, kill_s=kill_s, replay=True),
        "not replayed": _measure(*fleet, sessions, kill_s=kill_s),
    }
    if wrong := _report(one, several, killed, kill_s, options.gateways):
        raise SystemExit("NOT as it must be: " + "; ".join(wrong))
    print("as it must be")


def _start(stack: contextlib.ExitStack, commands: Sequence[tuple[str, ...]],
           ) -> list[Started]:  # fmt: skip
    """Start all of them, as many at a time as there are processors."""
    contexts = [running("gateway", *words) for words in commands]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        started = list(threads.map(lambda context: context.__enter__(), contexts))
    for context in contexts:
        stack.push(context)
    return started


def _gateway(workers: Sequence[str]) -> tuple[str, ...]:
    return ("serve", "--workers", ",".join(workers), "--model", str(demo_model_dir()),
            "--host", "127.0.0.1", "--port", "0", "--log-level", "error")  # fmt: skip


def _measure(
    workers: int,
    gateways: int,
    sessions: Sequence[Session],
    *,
    kill_s: float | None = None,
    replay: bool = False,
) -> Traffic:
    """Hold the chats with so many fresh gateways before fresh workers."""
    worker: tuple[str, ...] = ("sim-worker", "--engine", "vllm", "--port", "0",
              "--served-model-name", NAME, "--prefill-rate", "10000",
              "--decode-rate", "120", "--blocks", "2560")  # fmt: skip
    worker += ("--replay-port", "0") if replay else ()
    with contextlib.ExitStack() as stack:
        urls = [url for _, url in _start(stack, workers * [worker])]
        started = _start(stack, gateways * [_gateway(urls)])
        traffic = Traffic([url for _, url in started], NAME)
        if kill_s is None:
            asyncio.run(traffic.hold(sessions))
        else:
            asyncio.run(_hold_and_kill(stack, traffic, sessions, started[-1], kill_s,
                                       _gateway(urls)))  # fmt: skip
    return traffic


async def _hold_and_kill(
    stack: contextlib.ExitStack,
    traffic: Traffic,
    sessions: Sequence[Session],
    victim: Started,
    kill_s: float,
    command: tuple[str, ...],
) -> None:
    async with asyncio.TaskGroup() as tasks:
        chats = tasks.create_task(traffic.hold(sessions))
        await asyncio.sleep(kill_s)
        os.kill(victim[0], signal.SIGKILL)
        # The balancer finds out by its errors, a second later.
        await asyncio.sleep(1.0)
        traffic.gateways.remove(victim[1])
        ((_, url),) = await asyncio.to_thread(_start, stack, [command])
        print(
            f"  another gateway is ready {traffic.now_s - kill_s:.1f} s after the kill"
        )
        traffic.gateways.append(url)
        await chats


def _report(
    one: Traffic,
    several: Traffic,
    killed: Mapping[str, Traffic],
    kill_s: float,
    gateways: int,
) -> list[str]:
    """Print all of it; what is not as it must be."""
    first, second = hit_rate(one.samples), hit_rate(several.samples)
    points = 100 * (second - first)
    print(f"hit rate of 1 gateway   {first:6.1%}")
    print(f"hit rate of {gateways} gateways  {second:6.1%}, {points:+.1f} points")
    print(f"one of {gateways} is killed after {kill_s:g} s and replaced; hit rates of "
          "requests by the seconds")  # fmt: skip
    print("from then to when they were sent:")
    columns = {"1 gateway": one, "none killed": several, **killed}
    print("  " + " ".join(f"{name:>12}" for name in ("seconds", *columns)))
    for window in windows([t.samples for t in columns.values()], kill_s):
        cells = " ".join(f"{rate:12.1%}" for rate in window.rates)
        print(f"  {window.begin_s:>5g}..{window.end_s:<5g} {cells}")
    wrong = [] if abs(points) <= POINTS else [f"{points:+.1f} points"]
    for name, traffic in killed.items():
        wrong += _judge(name, traffic, one, kill_s)
    return wrong


def _judge(name: str, traffic: Traffic, one: Traffic, kill_s: float) -> list[str]:
    """Print what came of a kill; what is not as it must be."""
    run, undisturbed = traffic.samples, one.samples
    before = hit_rate(run, kill_s - LEVEL_S, kill_s)
    after = hit_rate(run, kill_s, kill_s + LIMIT_S)
    seconds = recovered_s(run, undisturbed, kill_s)
    how = "did not recover" if seconds is None else f"recovered within {seconds:g} s"
    print(f"  {name}: {before:.1%} in the {LEVEL_S:g} s before the kill, {after:.1%} "
          f"in the {LIMIT_S:g} s after it; {how} of the kill")  # fmt: skip
    print(f"  {name}: connections that broke, sent again: {_told(traffic.retried)}")
    print(f"  {name}: anything else: {_told(traffic.refused)}")
    found = faults(run, undisturbed, kill_s, traffic.refused)
    return [f"{name}: {fault}" for fault in found]


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items()) or "none"
