"""Sends a worker's KV events as vLLM does: a PUB socket, and a ROUTER for replay.

Batches are numbered from 0 since start; the last `buffer_batches` can be asked for
again. Sending never waits: a subscriber that does not read loses batches, as with
the real engine.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from socket import gethostbyname
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from kvindex.events import EventBatch, KVEvent
from kvindex.wire.vllm import encode_batch, encode_frames

log = logging.getLogger(__name__)

END_OF_REPLAY = b"\xff" * 8
ANY_HOST = ("0.0.0.0", "::")  # noqa: S104 - only compared with


class PublisherOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how events are sent. A port of 0 is one the system chooses.

    `legacy_replay` leaves the topic out of replay messages, as vLLM < 0.26 did.
    """

    host: str = "127.0.0.1"
    port: int = 0
    replay_port: int | None = None
    topic: str = ""
    buffer_batches: int = 10_000
    high_water_mark: int = 100_000
    legacy_replay: bool = False


class Publisher:
    """One data-parallel rank's stream of event batches."""

    def __init__(self, options: PublisherOptions, *, rank: int = 0) -> None:
        self._options = options
        self._rank = rank
        self._topic = options.topic.encode()
        self._next_sequence = 0
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=options.buffer_batches)
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._router: zmq.asyncio.Socket | None = None
        self._replay: asyncio.Task[None] | None = None
        self.endpoint = ""
        self.listed_endpoint = ""
        self.replay_endpoint: str | None = None

    @property
    def next_sequence(self) -> int:
        """The number of the next batch; so many were sent."""
        return self._next_sequence

    def listing(self) -> dict[str, object]:
        """This rank's entry of `/kv_event_sources`."""
        options = self._options
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": self.listed_endpoint,
            "replay_endpoint": self.replay_endpoint,
            "buffer_steps": options.buffer_batches,
            "hwm": options.high_water_mark,
            "max_queue_size": options.high_water_mark,
            "topic": options.topic,
        }

    def start(self) -> None:
        """Bind the sockets; called on the event loop. Raises OSError."""
        options = self._options
        self._context = zmq.Context()
        try:
            socket = self._socket = self._context.socket(zmq.PUB)
            socket.set(zmq.SNDHWM, options.high_water_mark)
            port = _bind(socket, options.host, options.port)
            self.endpoint = f"tcp://{_numeric(options.host)}:{port}"
            # As the engine does: a chosen port is listed with its address, if it has
            # one, a given port as it was configured.
            everywhere = options.port or options.host in ANY_HOST
            self.listed_endpoint = f"tcp://*:{port}" if everywhere else self.endpoint
            if options.replay_port is not None:
                self._start_replay(self._context, options.replay_port)
        except OSError:
            self.close()
            raise

    def _start_replay(self, context: zmq.Context[zmq.Socket[bytes]], port: int) -> None:
        router = zmq.asyncio.Context(shadow=context).socket(zmq.ROUTER)
        self._router = router
        router.set(zmq.SNDHWM, 2 * (self._options.buffer_batches + 1))
        chosen = _bind(router, self._options.host, port)
        self.replay_endpoint = f"tcp://{_numeric(self._options.host)}:{chosen}"
        self._replay = asyncio.get_running_loop().create_task(self._serve(router))

    def publish(self, events: Sequence[KVEvent]) -> None:
        """Number, keep and send one batch."""
        batch = EventBatch(timestamp=time.time(), events=tuple(events), rank=self._rank)
        payload = encode_batch(batch)
        sequence = self._next_sequence
        self._next_sequence += 1
        self._buffer.append((sequence, payload))
        if self._socket is not None:
            frames = encode_frames(self._topic, sequence, payload)
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=True)

    async def _serve(self, router: zmq.asyncio.Socket) -> None:
        while True:
            frames = await router.recv_multipart()
            if len(frames) != 3 or frames[1] or len(frames[2]) != 8:
                log.warning("ignored a replay request of %d frames", len(frames))
                continue
            client = frames[0]
            for sequence, payload in self._from(int.from_bytes(frames[2])):
                await router.send_multipart(self._reply(client, sequence, payload))
                await asyncio.sleep(0)  # a send that need not wait does not yield
            end = [client, b"", END_OF_REPLAY, b""]
            if not self._options.legacy_replay:
                end.insert(2, b"")
            await router.send_multipart(end)

    def _from(self, sequence: int) -> list[tuple[int, bytes]]:
        first = self._buffer[0][0] if self._buffer else 0
        return list(islice(self._buffer, max(0, sequence - first), None))

    def _reply(self, client: bytes, sequence: int, payload: bytes) -> list[bytes]:
        topic, number, content = encode_frames(self._topic, sequence, payload)
        if self._options.legacy_replay:
            return [client, b"", number, content]
        return [client, b"", topic, number, content]

    async def stop(self) -> None:
        """Close the sockets; what was not delivered is lost."""
        if self._replay is not None:
            self._replay.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._replay
            self._replay = None
        self.close()

    def close(self) -> None:
        """Close without waiting for anything."""
        for socket in (self._router, self._socket):
            if socket is not None:
                socket.close(linger=0)
        if self._context is not None:
            self._context.term()
        self._context = self._socket = self._router = None


def _bind(socket: zmq.Socket[Any], host: str, port: int) -> int:
    """Bind as vLLM does: a given port on every address, a chosen one on `host`."""
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.IPV6, ":" in host)
    address = f"tcp://*:{port}" if port else f"tcp://{_numeric(host)}:*"
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise OSError(error.errno, f"{error.strerror}: {address}") from error
    return port or int(socket.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2])


def _numeric(host: str) -> str:
    """The address of a host: ZeroMQ takes names for those of interfaces."""
    if ":" in host:
        return f"[{host}]"
    return gethostbyname(host)
