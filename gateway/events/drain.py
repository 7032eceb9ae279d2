"""Events that wait at a worker to be fetched: POST /kv_cache_events, again and again.

TensorRT-LLM hands each event out once, so one task fetches for all ranks of a worker,
often while the worker is at work for this gateway and seldom else. Event ids count up
per rank: a hole means that another consumer fetched some, or that the worker's buffer
ran over. What an event says is kvindex's business.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

import aiohttp

from gateway.events.owners import Owners
from gateway.events.silence import expect
from gateway.events.slices import BLOCKS, Slices
from gateway.workers.asking import CLOSED, reason
from gateway.workers.engines.trtllm import NO_EVENTS
from kvindex.wire.trtllm_drain import RawEvent, is_list, read_drain
from router.worker import Worker

log = logging.getLogger(__name__)

ROUTE = "/kv_cache_events"
BUSY_S = 0.075
LINGER_S = 2.0
"""So long after the last request or event a worker still counts as busy."""
IDLE_S = 1.0
RETRY_S = 0.5
RETRY_LIMIT_S = 10.0
TIMEOUT = aiohttp.ClientTimeout(total=10, connect=3)
"""Older workers wait two seconds for an event before they answer."""
ANSWER_LIMIT = 64 * 1024 * 1024
"""An event names each token of a prompt: 2.5 MB for 40,000 of them."""
LINES_S = 60.0
FULL_BUFFER = 1024
"""Events; smaller buffers are hardly ever configured."""


class DrainFailed(Exception):
    """The worker handed out no events; the text says why."""


class Drainer:
    """Fetches the events of workers that keep them."""

    def __init__(
        self, owners: Owners, slices: Slices, api_key: str | None = None
    ) -> None:
        self._owners = owners
        self._slices = slices
        self._api_key = api_key

    async def follow(
        self,
        session: aiohttp.ClientSession,
        worker: Worker,
        look: Callable[[], None],
    ) -> None:
        """Fetch one worker's events until cancelled.

        `look` is called where it stops answering, and where it answers again.
        """
        log.info("worker %s: fetching KV events at %s", worker.url, ROUTE)
        pace, holes, failures = Pace(worker), Holes(worker.url), 1
        answered = False
        while True:
            key = worker.api_key or self._api_key
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            try:
                body = await self._fetch(session, worker.url, headers)
            except DrainFailed as error:
                if not failures:
                    look()
                self._disconnected(worker, f"POST {ROUTE}: {error}")
                await asyncio.sleep(min(RETRY_S * 2.0**failures, RETRY_LIMIT_S))
                failures = min(failures + 1, 10)
                continue
            if failures:
                self._connected(worker)
                if answered:
                    look()
                answered = True
            gaps = _gaps(worker)
            events = await self._hand_over(worker, body)
            if not failures:  # after one that failed, holes are no wonder
                holes.note(events=events, found=_gaps(worker) > gaps)
            failures = 0
            await pace.wait(heard=events > 0)

    async def _fetch(
        self, session: aiohttp.ClientSession, url: str, headers: Mapping[str, str]
    ) -> bytearray:
        try:
            try:
                return await _fetched(session, url, headers)
            except CLOSED:  # perhaps it rested; had it brought events, ids have a hole
                return await _fetched(session, url, headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise DrainFailed(reason(error)) from None

    def _connected(self, worker: Worker) -> None:
        for known in worker.knowledge.values():
            known.feed.connected()
            known.feed.work(BLOCKS)
            expect(known.feed, "the worker keeps no events: " + NO_EVENTS)

    def _disconnected(self, worker: Worker, why: str) -> None:
        for known in worker.knowledge.values():
            known.feed.disconnected(why)
            known.feed.work(BLOCKS)
            expect(known.feed, why)

    async def _hand_over(self, worker: Worker, body: bytearray) -> int:
        """Give each event to its rank's feed; how many there were.

        In slices short enough for requests.
        """
        events, steps, over = 0, read_drain(body), object()
        while True:
            async with self._slices.turn():
                step = next(steps, over)
            if step is over:
                break
            if isinstance(step, RawEvent):
                events += 1
                await self._hand_on(worker, step)
            elif isinstance(step, str):
                self._undecodable(worker, step)
        for known in list(worker.knowledge.values()):
            await self._slices.work_off(known.feed)  # of other causes than events, too
        return events

    async def _hand_on(self, worker: Worker, event: RawEvent) -> None:
        """Give an event to its feed."""
        feed = self._owners.feed(worker, event.rank)
        if feed is None:
            log.debug("worker %s: an event of rank %d", worker.url, event.rank)
            return
        restarts = feed.counters.restarts
        feed.receive(event.event_id, event.payload)
        await self._slices.work_off(feed)
        if feed.counters.restarts > restarts:
            self._owners.began_anew(worker, event.rank)

    def _undecodable(self, worker: Worker, why: str) -> None:
        """Of which rank it would have been, nobody knows."""
        for known in worker.knowledge.values():
            known.feed.unframed(why)


async def _fetched(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str]
) -> bytearray:
    async with session.post(url + ROUTE, headers=headers, timeout=TIMEOUT) as response:
        if response.status != 200:
            raise DrainFailed(f"answers {response.status}")
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > ANSWER_LIMIT:
                raise DrainFailed(f"answers more than {ANSWER_LIMIT} B")
    if not is_list(body):
        raise DrainFailed("answers no list")
    return body


def _gaps(worker: Worker) -> int:
    return sum(known.feed.counters.gaps for known in worker.knowledge.values())


class Pace:
    """When to fetch next."""

    def __init__(
        self, worker: Worker, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._worker = worker
        self._clock = clock
        self._busy_until = 0.0
        self._turns = 0

    async def wait(self, *, heard: bool) -> None:
        """Until the next fetch; `heard`: the last one brought events."""
        begun = self._clock()
        if heard:
            self._busy_until = begun + LINGER_S
        while True:
            await asyncio.sleep(BUSY_S)
            now = self._clock()
            if self._works():
                self._busy_until = now + LINGER_S
            if now < self._busy_until or now - begun >= IDLE_S:
                return

    def _works(self) -> bool:
        """Whether requests are in flight there, or were since the last look."""
        turns = sum(ledger.last_turn for ledger in self._worker.ledgers.values())
        moved, self._turns = turns != self._turns, turns
        return moved or self._worker.inflight_requests > 0


class Holes:
    """Says what holes in the event ids of one worker mean, once a minute at most."""

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = time.monotonic,
        warn: Callable[[str], None] = log.warning,
    ) -> None:
        self._url = url
        self._clock = clock
        self._warn = warn
        self._largest = 0
        self._quiet_until = clock()

    def note(self, *, events: int, found: bool) -> None:
        """A fetch brought so many events; was there a hole before or among them?"""
        largest, now = self._largest, self._clock()
        self._largest = max(largest, events)
        if found and now >= self._quiet_until:
            self._quiet_until = now + LINES_S
            cause = cause_of_hole(events, largest)
            self._warn(f"worker {self._url}: KV event ids have holes: {cause}")


def cause_of_hole(events: int, largest: int) -> str:
    """The likely cause, by how many events came with it and the most that ever came.

    A buffer that runs over is full: no fetch brings more.
    """
    other = f"another consumer fetches {ROUTE}, which hands out each event once"
    over = f"event_buffer_max_size is too small ({events} events came at once)"
    if events < largest:
        return other
    return over if events >= FULL_BUFFER else f"{other}; or {over}"
