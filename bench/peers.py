"""Published routers and ours: hit rate, TTFT, success, CPU, on the same chats.

smg, sglang-router and vllm-router are installed from PyPI, each into a virtual
environment of its own. Simulated vLLM workers with real sockets and KV events, started
anew for each run; seeded chats of a support desk, whose caches do not hold all. The
routers take turns; a round has a seed of its own. The exit status is 1 where a peer is
ahead of ours (with events) in hit rate or mean TTFT over all rounds.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from bench._chat_clients import Asked, hold
from bench._environments import DIRECTORY, NotInstalled
from bench._processes import cpu_s, free_port, percentile, running
from bench._routers import (
    OURS,
    NotRunning,
    Router,
    SimulatedWorker,
    interpreter,
    routers,
    started,
)
from simworker.workload import Session, Shape, generate

MODEL = "demo"
SHAPE = Shape(products=6, system_sentences=(60, 140), turns=(3, 7), arrival_s=40.0,
              max_tokens=(20, 60), gap_s=2.0)  # fmt: skip
PROBE = {
    "model": MODEL,
    "max_tokens": 1,
    "messages": [{"role": "user", "content": "hello"}],
}


class Run(msgspec.Struct, frozen=True):
    """One router in one round."""

    asked: Sequence[Asked]
    cpu_s: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of one router came to."""

    requests: int
    success: float
    hit_rate: float
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p90_s: float
    cpu_ms: float
    """Of the router's process, for each request."""
    failures: Sequence[str]


def figures(runs: Sequence[Run]) -> Figures:
    """Over all runs of one router."""
    asked = [one for run in runs for one in run.asked]
    whole = [one for one in asked if not one.failure]
    ttfts = [one.ttft_s for one in whole if one.ttft_s is not None] or [float("inf")]
    tokens = sum(one.prompt_tokens for one in whole)
    return Figures(
        requests=len(asked),
        success=len(whole) / len(asked),
        hit_rate=sum(one.cached_tokens for one in whole) / max(1, tokens),
        ttft_mean_s=statistics.fmean(ttfts),
        ttft_p50_s=percentile(ttfts, 0.5),
        ttft_p90_s=percentile(ttfts, 0.9),
        cpu_ms=1000 * sum(run.cpu_s for run in runs) / len(asked),
        failures=sorted({one.failure for one in asked if one.failure}),
    )


def run(words: Sequence[str]) -> None:
    """Run all, print the table; SystemExit(1) where a peer is ahead."""
    args = _arguments(words)
    runs: dict[str, list[Run]] = {}
    missing: dict[str, str] = {}
    for number in range(args.rounds):
        sessions = generate(args.seed + number, args.chats, SHAPE)
        for router in _chosen(args.only):
            if router.name in missing:
                continue
            print(f"round {number + 1}: {router.name}", file=sys.stderr)
            try:
                one = _run(router, args, sessions)
            except NotInstalled as error:
                missing[router.name] = f"cannot be installed: {error}"
            except NotRunning as error:
                missing[router.name] = f"does not run: {error}"
            else:
                runs.setdefault(router.name, []).append(one)
    results = {name: figures(of_one) for name, of_one in runs.items()}
    print(table(results, missing))
    if not ahead(results):
        raise SystemExit(1)


def _chosen(only: str) -> list[Router]:
    every = routers(MODEL)
    return [one for one in every if one.requirements is None or only in one.name]


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench peers", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=3, metavar="N", help="(default: 3)")
    add("--workers", type=int, default=4, metavar="N", help="(default: 4)")
    add("--chats", type=int, default=60, metavar="N", help="in a round (default: 60)")
    add("--cache-tokens", type=int, default=24_000, metavar="N",
        help="of each worker (default: 24000)")  # fmt: skip
    add("--prefill-rate", type=float, default=4_000.0, metavar="R",
        help="tokens a second of each worker (default: 4000)")  # fmt: skip
    add("--seed", type=int, default=1, metavar="S")
    add("--only", default="", metavar="TEXT", help="of the peers, those so named")
    add("--environments", type=Path, default=DIRECTORY, metavar="DIR",
        help=f"where the peers are installed (default: {DIRECTORY})")  # fmt: skip
    return parser.parse_args(words)


def _run(router: Router, args: argparse.Namespace, sessions: Sequence[Session]) -> Run:
    """One router before workers of its own. Raises NotInstalled, NotRunning."""
    python = interpreter(router, args.environments)
    with _fleet(args, events=router.worker_events) as workers:
        body = json.dumps(PROBE).encode()
        with started(router, python, workers, body) as (pid, url):
            before = cpu_s(pid)
            asked = asyncio.run(hold(url, MODEL, sessions))
            return Run(asked, cpu_s(pid) - before)


@contextlib.contextmanager
def _fleet(
    args: argparse.Namespace, *, events: bool
) -> Iterator[list[SimulatedWorker]]:
    ports = [free_port() for _ in range(args.workers)]
    with contextlib.ExitStack() as stack:
        starts = [
            running(*_worker(args, port, events=events), quiet=True) for port in ports
        ]
        with ThreadPoolExecutor(args.workers) as threads:
            urls = [url for _, url in threads.map(stack.enter_context, starts)]
        yield [
            SimulatedWorker(url, f"tcp://127.0.0.1:{port}")
            for url, port in zip(urls, ports, strict=True)
        ]


def _worker(args: argparse.Namespace, port: int, *, events: bool) -> list[str]:
    return [
        *("gateway", "sim-worker", "--engine", "vllm", "--port", "0"),
        *("--served-model-name", MODEL, "--block-size", "16"),
        *("--blocks", str(args.cache_tokens // 16 + 1)),  # one is reserved, as in vLLM
        *("--prefill-rate", str(args.prefill_rate)),
        *(("--kv-events-port", str(port)) if events else ("--no-kv-events",)),
    ]


def ahead(results: dict[str, Figures]) -> bool:
    """Whether ours with events is ahead of each peer in hit rate and mean TTFT."""
    ours = next(iter(results.values()))
    return all(
        ours.hit_rate >= one.hit_rate and ours.ttft_mean_s <= one.ttft_mean_s
        for name, one in results.items()
        if not name.startswith(OURS)
    )


def table(results: dict[str, Figures], missing: dict[str, str]) -> str:
    """All, as Markdown; times in milliseconds."""
    lines = [
        "| router | requests | success | hit rate | TTFT mean | p50 | p90 "
        "| CPU ms a request |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, one in results.items():
        ttfts = (one.ttft_mean_s, one.ttft_p50_s, one.ttft_p90_s)
        times = " | ".join(f"{1000 * seconds:.0f}" for seconds in ttfts)
        lines.append(
            f"| {name} | {one.requests} | {one.success:.1%} | {one.hit_rate:.1%} | "
            f"{times} | {one.cpu_ms:.2f} |"
        )
    lines += [f"| {name} | {why} | | | | | | |" for name, why in missing.items()]
    return "\n".join(lines)
