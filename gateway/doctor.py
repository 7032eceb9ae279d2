"""`kv-gateway doctor`: does each worker answer, send events, render alike?

A gateway that serves nobody: it contacts the workers, follows their events, asks for
proof of their rendering, and prints what it knows of each. With `--probe` it sends each
worker one small chat, after which events must arrive.
"""

import asyncio
import secrets
import sys
from collections.abc import Sequence
from typing import Annotated

import aiohttp
import msgspec

from gateway.app import Gateway
from gateway.asking import Asker, Unanswered
from gateway.config import Config
from gateway.diagnosis import Checkup, Finding, examine, settled
from gateway.options import SECONDS, option
from gateway.values import positive
from router.worker import Worker

LOOK_S = 0.1
ANSWER_LIMIT = 1024 * 1024
BLOCKS_SENT = 4
"""Full blocks that the small request has at least, so that one must be stored."""
COLUMNS = ("worker", "state", "engine", "KV events", "block size", "rendering")


class DoctorConfig(Config, frozen=True, kw_only=True):
    """The options of the front door, and how long to look."""

    wait: Annotated[
        float,
        option(
            "seconds to wait for events and proof", metavar="SECONDS", parse=positive
        ),
    ] = 15 * SECONDS


async def check(config: DoctorConfig) -> list[Checkup]:
    """Examine every worker; ConfigError for a model that cannot be loaded."""
    gateway = Gateway(config)
    await gateway.start()
    try:
        workers = gateway.pool.workers
        sent = await _probed(config, workers) if config.probe else {}
        await _wait_for(gateway, config.wait)
        found = [examine(w, gateway.monitor.facts.get(w.url)) for w in workers]
    finally:
        await gateway.stop()
    return [_with(checkup, sent.get(checkup.url)) for checkup in found]


async def _wait_for(gateway: Gateway, seconds: float) -> None:
    """Wait until everything is known of the workers that answer, or the time is up."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        answering = [w for w in gateway.pool.workers if w.url in gateway.monitor.facts]
        if all(map(settled, answering)):
            return
        await asyncio.sleep(LOOK_S)


async def _probed(
    config: DoctorConfig, workers: Sequence[Worker]
) -> dict[str, str | None]:
    """Send each worker one small chat; what went wrong with it, by URL."""
    timeout = aiohttp.ClientTimeout(total=config.wait, connect=config.connect_timeout)
    async with aiohttp.ClientSession() as session:
        askers = [
            Asker(session, w.url, config.worker_api_key, timeout=timeout)
            for w in workers
        ]
        pairs = zip(askers, workers, strict=True)
        problems = await asyncio.gather(*(_ask(a, w) for a, w in pairs))
    return dict(zip((w.url for w in workers), problems, strict=True))


async def _ask(asker: Asker, worker: Worker) -> str | None:
    if not worker.names:
        return None  # it never said what it serves
    words = BLOCKS_SENT * max(map(worker.block_size_of, worker.ranks))
    text = " ".join(secrets.token_hex(2) for _ in range(words))
    base = (n for n, name in worker.names.items() if name.adapter is None)
    body = {
        "model": next(base, next(iter(worker.names))),
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 1,
    }
    try:
        path = "/v1/chat/completions"
        page = await asker.post(path, msgspec.json.encode(body), ANSWER_LIMIT)
    except Unanswered as error:
        return f"a small chat failed: {error}"
    return None if page.status == 200 else f"a small chat is answered {page.status}"


def _with(checkup: Checkup, problem: str | None) -> Checkup:
    if problem is None:
        return checkup
    finding = Finding(problem, "see the worker's log; --worker-api-key if it needs one")
    return msgspec.structs.replace(checkup, findings=(*checkup.findings, finding))


def report(checkups: Sequence[Checkup]) -> str:
    """One table, then each problem with its remedy."""
    rows = [
        COLUMNS,
        *(
            (c.url, c.state, c.engine, c.events, c.block_size, c.rendering)
            for c in checkups
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    problems = [
        f"{checkup.url}: {finding.problem}\n    mend: {finding.remedy}"
        for checkup in checkups
        for finding in checkup.findings
    ]
    table = "\n".join(line.rstrip() for line in lines)
    return "\n".join([table, "", *(problems or ["nothing is wrong"]), ""])


def diagnose(config: DoctorConfig) -> int:
    """Examine, print, and say by the exit status whether something is wrong."""
    checkups = asyncio.run(check(config))
    sys.stdout.write(report(checkups))
    return 1 if any(checkup.findings for checkup in checkups) else 0
