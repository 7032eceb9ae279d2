"""Events again, for who missed some: the ROUTER socket of a publisher.

The last batches are kept as they were made, whatever became of them on their way.
"""

import asyncio
import contextlib
import logging
from collections import deque
from itertools import islice

import zmq.asyncio

from kvindex.wire.vllm import encode_frames
from simworker.faults.line import Line

log = logging.getLogger(__name__)

END_OF_REPLAY = b"\xff" * 8


class Replay:
    """Keeps batches and answers who asks for them, as the faults of `line` say."""

    def __init__(
        self, topic: bytes, line: Line, *, buffer_batches: int, legacy: bool
    ) -> None:
        self._topic = topic
        self._line = line
        self._legacy = legacy
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer_batches)
        self._router: zmq.asyncio.Socket | None = None
        self._task: asyncio.Task[None] | None = None

    def keep(self, sequence: int, payload: bytes) -> None:
        """Keep a batch; the oldest one goes where there is no room."""
        self._buffer.append((sequence, payload))

    def clear(self) -> None:
        """Nothing is kept any more."""
        self._buffer.clear()

    def start(self, router: zmq.asyncio.Socket) -> None:
        """Answer on `router`, which is closed at the end."""
        self._router = router
        self._task = asyncio.get_running_loop().create_task(self._serve(router))

    async def stop(self) -> None:
        """Answer no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self.close()

    def close(self) -> None:
        """Close the socket; a task that has not begun cannot."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._router is not None:
            self._router.close(linger=0)
            self._router = None

    async def _serve(self, router: zmq.asyncio.Socket) -> None:
        while True:
            frames = await router.recv_multipart()
            if len(frames) != 3 or frames[1] or len(frames[2]) != 8:
                log.warning("ignored a replay request of %d frames", len(frames))
                continue
            await self._answer(router, frames[0], int.from_bytes(frames[2]))

    async def _answer(
        self, router: zmq.asyncio.Socket, client: bytes, first: int
    ) -> None:
        faults = self._line.faults
        if faults.replay:
            self._line.count(f"replay_{faults.replay}")
        if faults.replay == "refuse":
            return
        pause_s = faults.pause_s if faults.replay == "slow" else 0.0
        for sequence, payload in self._from(first):
            await router.send_multipart(self._reply(client, sequence, payload))
            # A send that need not wait does not yield.
            await asyncio.sleep(pause_s)
            if faults.replay == "hang":
                return
        if faults.replay == "cut":
            return
        end = [client, b"", END_OF_REPLAY, b""]
        if not self._legacy:
            end.insert(2, b"")
        await router.send_multipart(end)

    def _from(self, sequence: int) -> list[tuple[int, bytes]]:
        first = self._buffer[0][0] if self._buffer else 0
        return list(islice(self._buffer, max(0, sequence - first), None))

    def _reply(self, client: bytes, sequence: int, payload: bytes) -> list[bytes]:
        topic, number, content = encode_frames(self._topic, sequence, payload)
        if self._legacy:
            return [client, b"", number, content]
        return [client, b"", topic, number, content]
