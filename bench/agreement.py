"""The simulation against real sockets: one workload, by processes and by virtual clock.

Simulated workers run as processes at their own speed behind a gateway process, and are
sent completions of token ids; `kv-gateway simulate` replays the same requests on the
same fleet. Hit rate and time to first token should be the same; status 1 where not.

By default the workers are busy two thirds of the time. At 8 requests a second the
median is no measure: arrivals that differ by 4 ms move it between 0.26 and 0.56 s in
the simulation alone, as half of the requests then wait for a queue or do not.
"""

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import msgspec

from bench._processes import percentile, running
from simworker.simulate.options import SimulateOptions
from simworker.simulate.prompts import BlockCutter, Prompt, extended, length
from simworker.simulate.replay import Outcome, Replay, hit_ceiling
from simworker.simulate.worker import Speed
from simworker.simulate.workload import Asked

HIT_RATE = 0.02
"""How far the hit rates may be apart."""
TTFT = 0.15
"""How far the medians may be apart, as a share."""
BLOCK_SIZE = 16
TENANTS = 60
PREFIX, QUESTION, ANSWER = 2_000, 300, 20
IDS = range(1_000, 20_000)
READY_S = 60.0
REQUEST_S = 120.0


class Seen(msgspec.Struct, frozen=True):
    """One request, as its client saw it: seconds, and tokens."""

    ttft_s: float
    cached_tokens: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload came to."""

    success_rate: float
    hit_rate: float
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p90_s: float


def run(words: Sequence[str]) -> None:
    """Run both, print both, and exit with status 1 where they disagree."""
    args = _arguments(words)
    options = _options(args)
    asked = requests(random.Random(args.seed), rate=args.rate, seconds=args.seconds)
    real = asyncio.run(_through_sockets(options, asked))
    cutter = BlockCutter(options.block_size)
    replay = Replay(options, asked, options.policies[0], cutter)
    simulated = replay.run(hit_ceiling(asked, cutter))
    print(table(len(asked), real, simulated))
    hits = abs(real.hit_rate - simulated.hit_rate)
    ratio = real.ttft_p50_s / simulated.ttft_p50_s
    print(
        f"hit rates are {hits:.2%} apart, the median of real sockets is {ratio:.2f} x"
    )
    agree = hits <= HIT_RATE and abs(ratio - 1) <= TTFT and real.success_rate == 1
    sys.exit(0 if agree else 1)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench agreement")
    add = parser.add_argument
    add("--workers", type=int, default=4, metavar="N", help="(default: 4)")
    add(
        "--rate",
        type=float,
        default=6.0,
        metavar="R",
        help="requests a second (default: 6)",
    )
    add("--seconds", type=float, default=60.0, metavar="S", help="(default: 60)")
    add("--prefill-rate", type=float, default=2_000.0, metavar="R")
    add("--cache-tokens", type=int, default=48_000, metavar="N")
    add("--policy", default="kv_cache_aware")
    add("--seed", type=int, default=0, metavar="S")
    return parser.parse_args(words)


def _options(args: argparse.Namespace) -> SimulateOptions:
    return SimulateOptions(
        workers=args.workers,
        cache_tokens=args.cache_tokens,
        block_size=BLOCK_SIZE,
        policies=(args.policy,),
        speed=Speed(prefill_rate=args.prefill_rate, max_running=64),
        seed=args.seed,
    )


def requests(rng: random.Random, *, rate: float, seconds: float) -> list[Asked]:
    """Questions of tenants with a prefix each; some ask far more often than others."""
    weights = [1 / (1 + rank) for rank in range(TENANTS)]
    asked: list[Asked] = []
    at = rng.expovariate(rate)
    while at < seconds:
        (tenant,) = rng.choices(range(TENANTS), weights)
        prefix = extended((), tenant, PREFIX)
        question = max(1, round(rng.gauss(QUESTION, QUESTION / 4)))
        prompt = extended(prefix, 1_000 + len(asked), question)
        asked.append(Asked(prompt=prompt, output_tokens=ANSWER, at=at))
        at += rng.expovariate(rate)
    return asked


def token_ids(prompt: Prompt) -> list[int]:
    """Ids that are equal where prompts are."""
    ids: list[int] = []
    for segment in prompt:
        ids += random.Random(segment.path).choices(IDS, k=segment.tokens)
    return ids


async def _through_sockets(options: SimulateOptions, asked: Sequence[Asked]) -> Figures:
    with contextlib.ExitStack() as stack:
        fleet = [running(*_worker(options)) for _ in range(options.workers)]
        with ThreadPoolExecutor(options.workers) as threads:
            urls = [url for _, url in threads.map(stack.enter_context, fleet)]
        words = ("--workers", ",".join(urls), "--policy", options.policies[0])
        serve = running("gateway", "serve", "--port", "0", *words)
        _, gateway = stack.enter_context(serve)
        limit = aiohttp.ClientTimeout(total=REQUEST_S)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:
            model = await _ready(session, gateway, options.workers)
            bodies = [_body(model, request) for request in asked]
            begun = time.monotonic()
            answers = [
                _answered(session, gateway, body, begun + request.at)
                for body, request in zip(bodies, asked, strict=True)
            ]
            seen = await asyncio.gather(*answers)
    return _figures(asked, seen)


def _worker(options: SimulateOptions) -> list[str]:
    speed = options.speed
    blocks = options.cache_tokens // BLOCK_SIZE + 1  # one is reserved, as in vLLM
    return [
        *("gateway", "sim-worker", "--engine", "vllm", "--port", "0"),
        *("--blocks", str(blocks), "--block-size", str(BLOCK_SIZE)),
        *("--prefill-rate", str(speed.prefill_rate)),
        *("--decode-rate", str(speed.decode_rate)),
        *("--max-running", str(speed.max_running)),
    ]


async def _ready(session: aiohttp.ClientSession, gateway: str, workers: int) -> str:
    """The model's name, once all workers are ready and their feeds live."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        async with session.get(f"{gateway}/gateway/workers") as page:
            found = (await page.json())["workers"]
        live = [
            worker["state"] == "ready" and worker["feeds"][0]["state"] == "live"
            for worker in found
            if worker["feeds"]
        ]
        if len(live) == workers and all(live):
            async with session.get(f"{gateway}/v1/models") as page:
                return str((await page.json())["data"][0]["id"])
        await asyncio.sleep(0.2)
    raise SystemExit("the fleet was not ready in time")


def _body(model: str, request: Asked) -> bytes:
    return msgspec.json.encode(
        {
            "model": model,
            "prompt": token_ids(request.prompt),
            "max_tokens": request.output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )


async def _answered(
    session: aiohttp.ClientSession, gateway: str, body: bytes, at: float
) -> Seen | None:
    """Send when it is time; None where no whole answer came."""
    await asyncio.sleep(max(0.0, at - time.monotonic()))
    headers = {"Content-Type": "application/json"}
    begun, first, last = time.monotonic(), None, b""
    try:
        async with session.post(
            f"{gateway}/v1/completions", data=body, headers=headers
        ) as answer:
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    first = first or time.monotonic()
                    last = line if b'"usage":{' in line.replace(b" ", b"") else last
    except (aiohttp.ClientError, TimeoutError):
        return None
    if first is None or not last:
        return None
    usage = msgspec.json.decode(last[6:])["usage"]
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Seen(first - begun, cached)


def _figures(asked: Sequence[Asked], seen: Sequence[Seen | None]) -> Figures:
    whole = [one for one in seen if one is not None]
    ttfts = [one.ttft_s for one in whole]
    tokens = sum(length(request.prompt) for request in asked)
    return Figures(
        success_rate=len(whole) / len(asked),
        hit_rate=sum(one.cached_tokens for one in whole) / tokens,
        ttft_mean_s=statistics.fmean(ttfts),
        ttft_p50_s=percentile(ttfts, 0.5),
        ttft_p90_s=percentile(ttfts, 0.9),
    )


def table(requests: int, real: Figures, simulated: Outcome) -> str:
    """Both, as Markdown; times in seconds."""
    lines = [
        f"| {requests} requests | success | hit rate | TTFT mean | p50 | p90 |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in (("real sockets", real), ("simulated", simulated)):
        lines.append(
            f"| {name} | {one.success_rate:.1%} | {one.hit_rate:.1%} | "
            f"{one.ttft_mean_s:.3f} | {one.ttft_p50_s:.3f} | {one.ttft_p90_s:.3f} |"
        )
    return "\n".join(lines)
