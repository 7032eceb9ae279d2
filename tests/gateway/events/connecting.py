"""Publishers that connect to a gateway that listens."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import zmq

from kvindex.blocks import pack_ids
from kvindex.events import BlockStored, EventBatch
from kvindex.wire.vllm import encode_batch, encode_frames
from simworker.server import SimWorker
from tests.running import Running, StartGateway, free_port, until


class Connecting:
    """A socket that publishes and connects, as some do."""

    def __init__(self, socket: "zmq.Socket[bytes]", topic: str) -> None:
        self._socket = socket
        self._topic = topic.encode()

    def stored(self, sequence: int, *numbers: int, rank: int | None = 0) -> None:
        """A batch of blocks, each with a prompt of its own."""
        events = tuple(
            BlockStored(
                hashes=(number,),
                token_ids=pack_ids(range(16 * number, 16 * number + 16)),
                block_size=16,
            )
            for number in numbers
        )
        batch = EventBatch(timestamp=0.0, events=events, rank=rank)
        frames = encode_frames(self._topic, sequence, encode_batch(batch))
        self._socket.send_multipart(frames)

    def close(self) -> None:
        """End, as its process does."""
        self._socket.close(linger=0)


@asynccontextmanager
async def connecting(endpoint: str, *topics: str) -> AsyncIterator[list[Connecting]]:
    """A publisher per topic, connected to `endpoint`, where they are heard."""
    with zmq.Context() as context:
        sockets = [context.socket(zmq.XPUB) for _ in topics]
        try:
            for socket in sockets:
                socket.connect(endpoint)
                # What is sent before the subscription comes is lost.
                await until(partial(socket.poll, 0))
            pairs = zip(sockets, topics, strict=True)
            yield [Connecting(socket, topic) for socket, topic in pairs]
        finally:
            for socket in sockets:
                socket.close(linger=0)


def topic_of(worker: SimWorker) -> str:
    """The topic in its usual form."""
    return f"kv@{worker.url.removeprefix('http://')}@org/model@v1"


async def listening(
    start_gateway: StartGateway, *workers: SimWorker, **given: Any
) -> tuple[Running, str]:
    """A gateway with an event socket of its own, and where that is."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    gateway = await start_gateway(*workers, kv_events_bind=endpoint, **given)
    return gateway, endpoint
