"""Asking a publisher again for batches that were missed.

A DEALER asks the publisher's ROUTER for all batches from a number on and hands what
comes to the feed, until the end marker or a time limit. What the answer means, and when
one is wanted, is the feed's to judge.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

import zmq
import zmq.asyncio

from gateway.events.slices import Slices, receive_slice
from kvindex.events import UndecodableBatch
from kvindex.feed import Feed
from kvindex.wire import vllm

log = logging.getLogger(__name__)

TOTAL_S = 20.0
SILENCE_S = 2.0
"""A publisher that sends nothing for so long will not: it is old, slow or not there."""
BATCH_BYTES = 32 * 1024 * 1024
RECEIVE_LIMIT = 20_000
"""Batches that may wait here; publishers keep 10,000 unless told otherwise."""


async def replay(
    context: zmq.asyncio.Context, endpoint: str, start: int, feed: Feed, slices: Slices
) -> None:
    """Have the batches from `start` on sent again, if the publisher does so in time."""
    complete = False
    feed.replaying(start)
    try:
        async with asyncio.timeout(TOTAL_S):
            complete = await _ask(context, endpoint, start, feed, slices)
    except TimeoutError:
        log.info("KV events of %s: %s still replays, given up", feed.key, endpoint)
    except zmq.ZMQError as error:
        log.error("KV events of %s: no replay at %s: %s", feed.key, endpoint, error)
    finally:
        feed.replay_ended(complete)
        await slices.work_off(feed)


async def _ask(
    context: zmq.asyncio.Context, endpoint: str, start: int, feed: Feed, slices: Slices
) -> bool:
    """Whether the answer came to its end."""
    with contextlib.closing(context.socket(zmq.DEALER)) as socket:
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RCVHWM, RECEIVE_LIMIT)
        socket.set(zmq.MAXMSGSIZE, BATCH_BYTES)
        socket.set(zmq.IPV6, 1)
        socket.connect(endpoint)
        await socket.send_multipart([b"", start.to_bytes(8, "big")])
        answer = _Answer(feed)
        plain: zmq.Socket[bytes] = zmq.Socket.shadow(socket)
        while await socket.poll(int(SILENCE_S * 1000)):
            async with slices.turn() as end:
                receive_slice(plain, answer.take, end)
            await slices.work_off(feed)
            if answer.ended:
                return True
        return False


class _Answer:
    """What a publisher sends; has it `ended`?"""

    def __init__(self, feed: Feed) -> None:
        self.ended = False
        self._feed = feed

    def take(self, frames: Sequence[bytes]) -> None:
        """One message of it."""
        try:
            _, sequence, payload = vllm.decode_frames(frames)
        except UndecodableBatch as error:
            self._feed.unframed(str(error))
            return
        self.ended = self.ended or sequence == vllm.END_OF_REPLAY
        if not self.ended:
            self._feed.replayed(sequence, payload)
