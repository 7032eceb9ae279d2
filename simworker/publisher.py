"""Sends a worker's KV events as vLLM and SGLang do: a PUB socket, a ROUTER for replay.

Batches are numbered from 0 since start; the last `buffer_batches` can be asked for
again. Sending never waits: a subscriber that does not read loses batches, as with
the real engine.
"""

import time
from collections.abc import Callable, Sequence
from socket import gethostbyname
from typing import Any

import zmq
import zmq.asyncio

from kvindex.events import EventBatch, KVEvent
from kvindex.wire.vllm import encode_batch, encode_frames
from simworker.faults.line import Line
from simworker.options import PublisherOptions, SimOptions
from simworker.replay import Replay

ATTEMPTS = 10
"""Ports in a row are not always free behind one that the system chose."""
AHEAD = 2
"""So many batches more has a process sent that was not heard."""
ANY_HOST = ("0.0.0.0", "::")  # noqa: S104 - only compared with


class Publisher:
    """One data-parallel rank's stream of event batches; `line` is their way out."""

    def __init__(
        self,
        options: PublisherOptions,
        *,
        rank: int = 0,
        encode: Callable[[EventBatch], bytes] = encode_batch,
    ) -> None:
        self._options = options
        self._rank = rank
        self._encode = encode
        self._topic = options.topic.encode()
        self._next_sequence = 0
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self.line = Line(self._send, json=False)
        self._replay = Replay(
            self._topic,
            self.line,
            buffer_batches=options.buffer_batches,
            legacy=options.legacy_replay,
        )
        self.endpoint = ""
        self.listed_endpoint = ""
        self.replay_endpoint: str | None = None

    @property
    def next_sequence(self) -> int:
        """The number of the next batch; so many were sent."""
        return self._next_sequence

    @property
    def port(self) -> int:
        """The port of the stream, once it is started; 0 before."""
        return int(self.endpoint.rpartition(":")[2] or 0)

    @property
    def replay_port(self) -> int:
        """The port for replay, once it is started; 0 without one."""
        return int((self.replay_endpoint or "").rpartition(":")[2] or 0)

    @property
    def chooses(self) -> bool:
        """Whether the system chooses the ports."""
        return not self._options.port

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

    def start(self, beside: "Publisher | None" = None) -> None:
        """Open the sockets; called on the event loop. Raises OSError.

        `beside` is the rank before this one: ports that the system chooses are those
        behind its own, as clients count them up.
        """
        follows = (0, 0) if beside is None else (beside.port, beside.replay_port)
        self._open(*(port + 1 if port else 0 for port in follows))

    def _open(self, port: int, replay_port: int) -> None:
        """The ports are those to choose where the options leave it to the system."""
        options = self._options
        self._context = zmq.Context()
        try:
            socket = self._socket = self._context.socket(zmq.PUB)
            socket.set(zmq.SNDHWM, options.high_water_mark)
            if options.connect is None:
                self._listen(socket, port)
            else:
                socket.set(zmq.LINGER, 0)
                socket.connect(options.connect)
                self.endpoint = self.listed_endpoint = options.connect
            if options.replay_port is not None:
                self._start_replay(self._context, replay_port)
        except OSError:
            self.close()
            raise

    def _listen(self, socket: zmq.Socket[bytes], chosen: int) -> None:
        options = self._options
        port = _bind(socket, options.host, options.port, chosen)
        self.endpoint = f"tcp://{_numeric(options.host)}:{port}"
        # As the engine does: a chosen port is listed with its address, if it has
        # one, a given port as it was configured.
        everywhere = options.port or options.host in ANY_HOST
        self.listed_endpoint = f"tcp://*:{port}" if everywhere else self.endpoint

    def _start_replay(
        self, context: zmq.Context[zmq.Socket[bytes]], chosen: int
    ) -> None:
        router = zmq.asyncio.Context(shadow=context).socket(zmq.ROUTER)
        router.set(zmq.SNDHWM, 2 * (self._options.buffer_batches + 1))
        host, given = self._options.host, self._options.replay_port or 0
        try:
            port = _bind(router, host, given, chosen)
        except OSError:
            router.close(linger=0)
            raise
        self.replay_endpoint = f"tcp://{_numeric(host)}:{port}"
        self._replay.start(router)

    def publish(self, events: Sequence[KVEvent]) -> None:
        """Number, keep and send one batch."""
        batch = EventBatch(timestamp=time.time(), events=tuple(events), rank=self._rank)
        payload = self._encode(batch)
        sequence = self._next_sequence
        self._next_sequence += 1
        self._replay.keep(sequence, payload)
        self.line.take(sequence, payload)

    def _send(self, sequence: int, payload: bytes) -> None:
        if self._socket is not None:
            frames = encode_frames(self._topic, sequence, payload)
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=True)

    def begin_anew(self, *, unheard: bool = False) -> None:
        """The process is another one: it numbers from 0 and has nothing to replay.

        `unheard`: it has sent more batches than the one before, and none was heard.
        """
        passed = self._next_sequence + AHEAD if unheard else 0
        self._next_sequence = passed
        self._replay.clear()
        self.line.clear()
        empty = EventBatch(timestamp=time.time(), events=(), rank=self._rank)
        payload = self._encode(empty)
        for sequence in range(passed):
            self._replay.keep(sequence, payload)

    async def reconnect(self) -> None:
        """Close the sockets and open them on the same ports. Raises OSError."""
        await self.stop()
        self._open(self.port, self.replay_port)

    async def stop(self) -> None:
        """Close the sockets; what was not delivered is lost."""
        await self._replay.stop()
        self.line.clear()
        self.close()

    def close(self) -> None:
        """Close without waiting for anything."""
        self._replay.close()
        if self._socket is not None:
            self._socket.close(linger=0)
        if self._context is not None:
            self._context.term()
        self._context = self._socket = None


def publishers(
    options: SimOptions, encode: Callable[[EventBatch], bytes]
) -> list[Publisher]:
    """One for each rank, none with events off."""
    return [
        Publisher(options.publisher_options(rank), rank=rank, encode=encode)
        for rank in range(options.data_parallel_size if options.kv_events else 0)
    ]


async def start_all(started: Sequence[Publisher]) -> None:
    """Start the publishers of all ranks of a worker. Raises OSError."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            for publisher, before in zip(started, [None, *started], strict=False):
                publisher.start(before)
            return
        except OSError:
            for publisher in started:
                await publisher.stop()
            if attempt == ATTEMPTS or not started[0].chooses:
                raise


def _bind(socket: zmq.Socket[Any], host: str, given: int, chosen: int) -> int:
    """Bind as vLLM does: a given port on every address, a chosen one on `host`.

    `chosen` 0: the system chooses. Returns the port. Raises OSError.
    """
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.IPV6, ":" in host)
    address = f"tcp://*:{given}" if given else f"tcp://{_numeric(host)}:{chosen or '*'}"
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise OSError(error.errno, f"{error.strerror}: {address}") from error
    return given or int(socket.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2])


def _numeric(host: str) -> str:
    """The address of a host: ZeroMQ takes names for those of interfaces."""
    if ":" in host:
        return f"[{host}]"
    return gethostbyname(host)
