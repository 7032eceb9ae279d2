"""Asking a publisher again for batches that were missed.

A DEALER asks the publisher's ROUTER for all batches from a number on and hands what
comes to the feed, until the end marker or a time limit. What the answer means is the
feed's to judge.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

import zmq
import zmq.asyncio

from kvindex.events import UndecodableBatch
from kvindex.feed import Feed
from kvindex.wire import vllm

log = logging.getLogger(__name__)

TOTAL_S = 20.0
SILENCE_S = 2.0
"""A publisher that sends nothing for so long will not: it is old, slow or not there."""
PAUSE_S = 30.0
"""So long nothing is asked after a replay that failed: live batches wait for none."""
SLICE_S = 0.002
BATCH_BYTES = 32 * 1024 * 1024
RECEIVE_LIMIT = 20_000
"""Batches that may wait here; publishers keep 10,000 unless told otherwise."""


class Replays:
    """The replays of one feed; `endpoint` None: its publisher has none."""

    def __init__(
        self,
        context: zmq.asyncio.Context,
        feed: Feed,
        endpoint: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._feed = feed
        self._endpoint = endpoint
        self._clock = clock
        self._not_before = clock()

    def wanted(self, sequence: int) -> bool:
        """Whether batches before this live one are missing and may be asked for."""
        last = self._feed.last_sequence
        return sequence > (0 if last is None else last + 1) and self.may_ask()

    def may_ask(self) -> bool:
        """Whether the publisher can be asked, and was not just asked in vain."""
        return self._endpoint is not None and self._clock() >= self._not_before

    async def run(self) -> None:
        """Ask for all from the last batch on; that one comes again if all is well."""
        if self._endpoint is None:
            return
        feed, start = self._feed, self._feed.last_sequence or 0
        feed.replaying(start)
        complete = False
        try:
            complete = await self._replay(self._endpoint, start)
        except zmq.ZMQError as error:
            log.error("KV events of %s: no replay: %s", feed.key, error)
        finally:
            feed.replay_ended(complete)
        if not complete:
            self._not_before = self._clock() + PAUSE_S

    async def _replay(self, endpoint: str, start: int) -> bool:
        """Whether it came to its end marker in time."""
        socket = self._context.socket(zmq.DEALER)
        try:
            socket.set(zmq.LINGER, 0)
            socket.set(zmq.RCVHWM, RECEIVE_LIMIT)
            socket.set(zmq.MAXMSGSIZE, BATCH_BYTES)
            socket.set(zmq.IPV6, 1)
            socket.connect(endpoint)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TOTAL_S):
                    await socket.send_multipart([b"", start.to_bytes(8, "big")])
                    return await self._take_all(socket)
            return False
        finally:
            socket.close(linger=0)

    async def _take_all(self, socket: zmq.asyncio.Socket) -> bool:
        end = time.monotonic() + SLICE_S
        while await socket.poll(int(SILENCE_S * 1000)):
            try:
                frames = await socket.recv_multipart()
                _, sequence, payload = vllm.decode_frames(frames)
            except UndecodableBatch as error:
                self._feed.unframed(str(error))
                continue
            if sequence == vllm.END_OF_REPLAY:
                return True
            self._feed.replayed(sequence, payload)
            if time.monotonic() > end:
                await asyncio.sleep(0)
                end = time.monotonic() + SLICE_S
        return False
