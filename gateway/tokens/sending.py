"""A rendered request sent to a worker that takes token ids, and its answer.

The answer is what the worker's chat route would have said, or what it refused in its
own words.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from gateway.metrics.registry import ServerMetrics
from gateway.request.headers import RawHeaders
from gateway.request.prompt import Kind
from gateway.threads import Threads
from gateway.tokens.asking import AT_ONCE, OK, Aborts, Asking, own_name
from gateway.tokens.chat import ChatWriter
from gateway.tokens.collecting import Collected
from gateway.tokens.completion import CompletionWriter
from gateway.tokens.following import follow
from gateway.tokens.generated import decoded
from gateway.tokens.generation import Generation
from gateway.tokens.heads import beside_another_body, without
from gateway.tokens.responses import ResponsesWriter
from gateway.tokens.translation import Translation, is_quick
from gateway.tokens.writer import Setting, Writer
from gateway.upstreams.origin import Origin
from gateway.upstreams.upstream import UpstreamRequest, Upstreams
from gateway.upstreams.upstream_response import UpstreamResponse
from render.body import Json
from router.worker import Worker

LONGEST_ANSWER = 256 * 1024 * 1024
LONGEST_ERROR = 1024 * 1024
NO_STOPS = b"stop strings are not supported"
"""How an engine says that it does not turn its ids into text."""
SMALL = 2 * 1024
"""Bytes of JSON with ids that are turned into text on the event loop."""

WRITERS: Mapping[Kind, type[Writer]] = {
    "chat": ChatWriter,
    "completion": CompletionWriter,
    "responses": ResponsesWriter,
}


class TokensSender:
    """Sends to workers that take token ids; knows which look for stop strings."""

    def __init__(
        self,
        upstreams: Upstreams,
        threads: Threads,
        aborts: Aborts,
        metrics: ServerMetrics,
    ) -> None:
        """The `threads` turn long answers into text."""
        self._upstreams = upstreams
        self._threads = threads
        self._aborts = aborts
        self._metrics = metrics
        self._without_stops: set[str] = set()

    async def send(
        self,
        generation: Generation,
        worker: Worker,
        origin: Origin,
        request: UpstreamRequest,
        request_id: str,
    ) -> UpstreamResponse:
        """The answer; GatewayError where there is none.

        `request` is the client's, as it would go to the worker's own chat route.
        """
        stops = worker.url not in self._without_stops
        asking = Asking(
            upstreams=self._upstreams,
            origin=origin,
            request=request,
            generation=generation,
            request_id=request_id,
            name=own_name(request_id),
            stream=generation.stream or (generation.stops and not stops),
            stops=stops,
        )
        first = await asking.open(0)
        if first.status == 200:
            return await self._answer(asking, first, worker)
        if first.status != 400 or not generation.stops or not stops:
            return first
        said = await first.read(LONGEST_ERROR)
        if NO_STOPS not in said:
            return whole(first, first.headers, said)
        self._without_stops.add(worker.url)
        return await self.send(generation, worker, origin, request, request_id)

    async def _answer(
        self, asking: Asking, first: UpstreamResponse, worker: Worker
    ) -> UpstreamResponse:
        generation = asking.generation
        setting = Setting.of(
            worker, generation, asking.request_id, stops=not asking.stops
        )
        writer = WRITERS[generation.kind](generation, setting)
        if generation.stream:
            return Translation(
                asking,
                first,
                writer,
                threads=self._threads,
                aborts=self._aborts,
                metrics=self._metrics,
            ).response
        try:
            return await self._whole(asking, first, writer)
        except BaseException:
            if first.open or len(generation.prompts) > 1:
                self._aborts.tell(asking)
            first.abort()
            raise

    async def _whole(
        self, asking: Asking, first: UpstreamResponse, writer: Writer
    ) -> UpstreamResponse:
        """The whole answer, as the client gets it."""
        free, sizes = asyncio.Semaphore(AT_ONCE), list[int]()

        async def one(prompt: int) -> Json:
            async with free:
                response = await asking.open(prompt) if prompt else first
                if response.status != OK:
                    said = await response.read(LONGEST_ERROR)
                    raise _Refused(whole(response, response.headers, said))
                return await self._read(asking, response, writer, prompt, sizes)

        tasks = [
            asyncio.ensure_future(one(prompt))
            for prompt in range(len(asking.generation.prompts))
        ]
        try:
            generated = await asyncio.gather(*tasks)
        except _Refused as refused:
            self._aborts.tell(asking)
            return refused.response
        finally:
            for task in tasks:
                task.cancel()
        body = await self._written(writer, generated, sum(sizes))
        told = beside_another_body(first.headers)
        length = (b"Content-Length", b"%d" % len(body))
        kind = (b"Content-Type", b"application/json")
        headers = [*without(told, {b"transfer-encoding"}), kind, length]
        return whole(first, headers, body)

    async def _read(
        self,
        asking: Asking,
        response: UpstreamResponse,
        writer: Writer,
        prompt: int,
        sizes: list[int],
    ) -> Json:
        """What was generated for a prompt; the size of its JSON goes to `sizes`."""
        if not asking.stream:
            body = await response.read(LONGEST_ANSWER)
            sizes.append(len(body))
            return decoded(body)
        generation = asking.generation
        ids = generation.prompts[prompt].tail
        collected = Collected(writer, ids, generation.choices)

        async def take(events: bytes) -> bool:
            sizes.append(len(events))
            if is_quick(events, collected.kept):
                return collected.feed(events)
            return await self._threads.run(lambda: collected.feed(events), begun=True)

        await follow(response, take, lambda: self._aborts.tell(asking, prompt))
        return collected.response()

    async def _written(self, writer: Writer, generated: list[Json], size: int) -> bytes:
        """The answer, of JSON that had `size` bytes."""

        def write() -> bytes:
            return msgspec.json.encode(writer.whole(generated))

        if size <= SMALL:
            return write()
        return await self._threads.run(write, begun=True)


class _Refused(Exception):
    """A worker took some prompts of a request, and not this one."""

    def __init__(self, response: UpstreamResponse) -> None:
        super().__init__(response.status)
        self.response = response


class _Over:
    """The flow of an answer that is there."""

    def pause(self) -> None:
        """Nothing is on its way."""

    def resume(self) -> None:
        """Nothing is on its way."""

    def abort(self) -> None:
        """Nothing is on its way."""

    async def settled(self) -> None:
        """Nothing is on its way."""


def whole(
    first: UpstreamResponse, headers: RawHeaders, body: bytes
) -> UpstreamResponse:
    """An answer with the worker's status and this body."""
    response = UpstreamResponse(
        status=first.status, reason=first.reason, headers=headers, flow=_Over()
    )
    response.push([body])
    response.finish()
    return response
