"""Small chats that a doctor sends a worker: is it up, do events come, what is told?

Each rank that can be asked for by name gets one of its own; the first is sent twice, so
that its second answer must tell of cached tokens.
"""

import asyncio
import secrets
from collections.abc import Sequence

import aiohttp
import msgspec

from gateway.request.outgoing import RANK_HEADER
from gateway.request.usage import UsageScanner
from gateway.settings.config import Config
from gateway.tls import for_workers
from gateway.workers.asking import Asker, Unanswered
from router.worker import CHAT, Worker

ANSWER_LIMIT = 1024 * 1024
BLOCKS_SENT = 4
"""Full blocks that a chat has at least, so that one must be stored."""
PATH = "/v1/chat/completions"
IDS_PATH = "/inference/v1/generate"
UNSENT = "no small chat is sent: /v1/models lists no model"
SMALL_IDS = 1000
"""Every vocabulary has as many."""


class Trial(msgspec.Struct, frozen=True):
    """What came of it: a problem, or the cached tokens told of the repeated chat."""

    problem: str | None = None
    cached_tokens: int | None = None


async def try_out(
    config: Config, workers: Sequence[Worker], seconds: float
) -> dict[str, Trial]:
    """Send each worker its chats, within so many seconds; what came of it, by URL."""
    timeout = aiohttp.ClientTimeout(total=seconds, connect=config.connect_timeout)
    connector = aiohttp.TCPConnector(ssl=for_workers(config))
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one(worker: Worker, rank: int | None) -> Trial:
            name = RANK_HEADER.decode()
            headers = {} if rank is None else {name: str(rank)}
            asker = Asker(
                session,
                worker.url,
                worker.api_key or config.worker_api_key,
                timeout=timeout,
                headers=headers,
            )
            return await _chats(asker, worker, twice=rank in (None, worker.ranks[0]))

        async def of(worker: Worker) -> Trial:
            if not worker.names:
                return Trial(UNSENT)
            ranks = worker.ranks if worker.pinned else (None,)
            trials = await asyncio.gather(*(one(worker, rank) for rank in ranks))
            return next((t for t in trials if t.problem), trials[0])

        trials = await asyncio.gather(*map(of, workers))
    return {worker.url: trial for worker, trial in zip(workers, trials, strict=True)}


async def _chats(asker: Asker, worker: Worker, *, twice: bool) -> Trial:
    path, trial = (PATH, _chat) if worker.api == CHAT else (IDS_PATH, _ids)
    body = msgspec.json.encode(trial(worker))
    cached = None
    try:
        for _ in range(2 if twice else 1):
            page = await asker.post(path, body, ANSWER_LIMIT)
            if page.status != 200:
                return Trial(f"a small chat is answered {page.status}")
            scanner = UsageScanner()
            scanner.feed(page.body)
            cached = scanner.usage.cached_tokens if scanner.usage else None
    except Unanswered as error:
        return Trial(f"a small chat failed: {error}")
    return Trial(None, cached)


def _chat(worker: Worker) -> dict[str, object]:
    """A chat whose first words no other has."""
    words = BLOCKS_SENT * max(map(worker.block_size_of, worker.ranks))
    text = " ".join(secrets.token_hex(2) for _ in range(words))
    return {
        "model": _model(worker),
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 1,
    }


def _ids(worker: Worker) -> dict[str, object]:
    """The same for a worker that takes token ids only."""
    size = BLOCKS_SENT * max(map(worker.block_size_of, worker.ranks)) + 1
    ids = [secrets.randbelow(SMALL_IDS) for _ in range(size)]
    sampling = {"max_tokens": 1}
    return {"model": _model(worker), "token_ids": ids, "sampling_params": sampling}


def _model(worker: Worker) -> str:
    base = (n for n, name in worker.names.items() if name.adapter is None)
    return next(base, next(iter(worker.names)))
