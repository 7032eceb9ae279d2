"""What a publisher sends of its buffer is taken as it waits, not one by one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import zmq.asyncio

from gateway.events.replay import replay
from gateway.events.slices import Slices
from kvindex.wire.vllm import END_OF_REPLAY, encode_frames

BATCHES = 400


class Counted(Slices):
    """Slices of which the turns are counted."""

    turns = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[float]:
        """One more."""
        self.turns += 1
        async with super().turn() as end:
            yield end


class Heard:
    """A feed that keeps what it is given."""

    key = "w"

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.ended: bool | None = None

    def replaying(self, start: int) -> None:
        """The batches from `start` on were asked for."""

    def replayed(self, sequence: int, payload: bytes) -> None:
        """One of them."""
        self.batches.append(sequence)

    def replay_ended(self, complete: bool) -> None:
        """It is over."""
        self.ended = complete

    def work(self, budget: int) -> bool:
        """There is nothing to do."""
        return False


async def test_many_batches_take_few_turns_of_the_loop() -> None:
    """Each turn of a loaded loop takes long, and there may be thousands of batches."""
    context, slices, heard = zmq.asyncio.Context(), Counted(), Heard()
    feed: Any = heard
    with context.socket(zmq.ROUTER) as router:
        router.set(zmq.LINGER, 0)
        router.bind("inproc://replay")
        asking = asyncio.create_task(
            replay(context, "inproc://replay", 0, feed, slices)
        )
        client, *_ = await router.recv_multipart()
        for sequence in (*range(BATCHES), END_OF_REPLAY):
            payload = b"" if sequence == END_OF_REPLAY else b"batch"
            await router.send_multipart(
                [client, *encode_frames(b"", sequence, payload)]
            )
        await asking
    context.term()
    assert (heard.batches, heard.ended) == (list(range(BATCHES)), True)
    assert slices.turns < BATCHES / 2
