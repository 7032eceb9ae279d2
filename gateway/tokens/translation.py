"""A stream of an engine's ids turned into the client's stream, event by event.

It takes the place of the worker's answer: the relay pulls and pauses it as any other.
"""

import asyncio
import logging
from contextlib import suppress

from gateway.errors import GatewayError, InternalError, MalformedAnswer
from gateway.metrics.registry import ServerMetrics
from gateway.request.sse import data_of, event
from gateway.threads import Threads
from gateway.tokens.asking import OK, Aborts, Asking
from gateway.tokens.following import follow
from gateway.tokens.generated import read_chunk
from gateway.tokens.heads import beside_another_body
from gateway.tokens.together import AT_ONCE, RefusedMeanwhile, end
from gateway.tokens.writer import DONE, Writer
from gateway.upstreams.upstream_response import UpstreamResponse

log = logging.getLogger(__name__)

ON_THE_LOOP = 16 * 1024
"""Bytes of events that are turned into text on the event loop; more, in a thread."""
KEPT_ON_THE_LOOP = 2048
"""Ids of an unfinished call that are read there, once it is whole."""


class _Broken(Exception):
    """The worker has told what broke its answer: that is the end of it."""


class Translation:
    """One answer on its way. `response` is what the client is to get."""

    def __init__(
        self,
        asking: Asking,
        first: UpstreamResponse,
        writer: Writer,
        *,
        threads: Threads,
        aborts: Aborts,
        metrics: ServerMetrics,
    ) -> None:
        """`first` answers the first prompt; `aborts`: what is left is not wanted."""
        self.response = UpstreamResponse(
            status=first.status,
            reason=first.reason,
            headers=[
                *beside_another_body(first.headers),
                *(h for h in first.headers if h[0].lower() == b"content-type"),
            ],
            flow=self,
        )
        self._asking = asking
        self._first = first
        self._writer = writer
        self._threads = threads
        self._aborts = aborts
        self._metrics = metrics
        self._sources = {first}
        self._broken: int | None = None  # the prompt whose answer is
        self._cut = False
        self._writing = asyncio.Lock()  # the writer is no matter for two threads
        self._going = asyncio.Event()
        self._going.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    # Flow

    def pause(self) -> None:
        """Send no more for now."""
        self._going.clear()

    def resume(self) -> None:
        """Send on."""
        self._going.set()

    def abort(self) -> None:
        """The client is gone: the engine is told."""
        if not self._task.done():
            self._task.cancel()
        self._stop()

    async def settled(self) -> None:
        """Return once nothing is read any more."""
        await asyncio.wait({self._task})

    # the work

    async def _run(self) -> None:
        try:
            with suppress(_Broken):
                await self._all()
            self._end()
            self.response.finish()
        except GatewayError as error:
            self._stop()
            self.response.fail(error)
        except asyncio.CancelledError:
            pass  # by `abort`; the error would keep all of this until it is collected
        except Exception:
            log.exception("an answer could not be turned into text")
            self._metrics.errors.labels("tokens").inc()
            self._stop()
            self.response.fail(InternalError("the answer could not be made"))
        finally:
            del self.response  # it has this as its flow

    async def _all(self) -> None:
        """Follow all prompts' answers to their ends, or to where no more is wanted."""
        count = len(self._asking.generation.prompts)
        if count == 1:
            await self._follow(0, self._first)
            return
        free = asyncio.Semaphore(AT_ONCE)

        async def one(prompt: int) -> None:
            async with free:
                source = self._first
                if prompt:
                    source = await self._asking.open(prompt)
                    self._sources.add(source)
                await self._follow(prompt, source)

        tasks = [asyncio.ensure_future(one(prompt)) for prompt in range(count)]
        try:
            await asyncio.gather(*tasks)
        finally:
            end(tasks)

    async def _follow(self, prompt: int, source: UpstreamResponse) -> None:
        if source.status != OK:
            source.abort()
            raise RefusedMeanwhile(f"a prompt was answered {source.status}")
        whole = await follow(
            source,
            lambda events: self._pass(prompt, events),
            lambda: self._aborts.tell(self._asking, prompt),
        )
        if self._broken == prompt:
            self._cut = not whole
            raise _Broken

    async def _pass(self, prompt: int, events: bytes) -> bool:
        """Send what whole events say; True where no more is to be generated."""
        async with self._writing:
            if self._broken is not None:  # nothing follows an error
                return True
            if out := await self._written(prompt, events):
                await self._going.wait()
                self.response.push([out])
        # Stop strings that the engine does not know may have ended it.
        ended = not self._asking.stops and self._writer.ended(prompt)
        return ended or self._broken is not None

    async def _written(self, prompt: int, events: bytes) -> bytes:
        if is_quick(events, self._writer.kept):
            return self._answered(prompt, events)
        return await self._threads.run(
            lambda: self._answered(prompt, events), begun=True
        )

    def _answered(self, prompt: int, events: bytes) -> bytes:
        out = bytearray()
        for data in data_of(events):
            if data == DONE:
                continue
            chunk = read_chunk(data, self._writer.shown)
            if chunk.error:
                self._broken = prompt
                out += event(data)
                break
            for answer in self._writer.feed(prompt, chunk):
                out += self._writer.encoded(answer)
        return bytes(out)

    def _end(self) -> None:
        """Send what is left to say of an answer: it is whole, or an error ends it."""
        said = b""
        if self._broken is not None:
            self._stop()
        elif self._writer.done:
            said = b"".join(map(self._writer.encoded, self._writer.end()))
            self.response.usage = self._writer.usage
        else:
            raise MalformedAnswer("the worker's stream ended before its choices")
        if not self._cut:
            said += self._writer.last
        if said:
            self.response.push([said])

    def _stop(self) -> None:
        """Have the engine stop what is not over."""
        running = [source for source in self._sources if source.open]
        for source in running:
            source.abort()
        if running or len(self._asking.generation.prompts) > 1:  # some just asked
            self._aborts.tell(self._asking)


def is_quick(events: bytes, kept: int) -> bool:
    """Whether the event loop may read these, with so many ids kept back."""
    return len(events) <= ON_THE_LOOP and kept <= KEPT_ON_THE_LOOP
