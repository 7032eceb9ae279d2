"""A rendered request sent to a worker that takes token ids, and its answer.

The answer is what the worker's chat route would have said, or what it refused in its
own words.
"""

from collections.abc import Mapping

import msgspec

from gateway.metrics.registry import ServerMetrics
from gateway.request.headers import RawHeaders
from gateway.request.prompt import Kind
from gateway.threads import Threads
from gateway.tokens.asking import OK, REFUSALS, Aborts, Asking, own_name
from gateway.tokens.chat import ChatWriter
from gateway.tokens.collecting import Collected
from gateway.tokens.completion import CompletionWriter
from gateway.tokens.following import follow
from gateway.tokens.generated import decoded
from gateway.tokens.generation import Generation
from gateway.tokens.heads import beside_another_body, without
from gateway.tokens.responses import ResponsesWriter
from gateway.tokens.together import Refused, is_untaken, together
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
        try:
            return await self._answer(asking, worker)
        except Refused as refused:
            if not refused.stops:
                if len(generation.prompts) > 1 and not refused.busy:
                    self._aborts.tell(asking)
                return refused.response
        except BaseException as error:
            if not is_untaken(error):
                self._aborts.tell(asking)
            raise
        self._without_stops.add(worker.url)
        return await self.send(generation, worker, origin, request, request_id)

    async def _answer(self, asking: Asking, worker: Worker) -> UpstreamResponse:
        """What the client gets; raises Refused and GatewayError."""
        generation = asking.generation
        setting = Setting.of(
            worker, generation, asking.request_id, stops=not asking.stops
        )
        writer = WRITERS[generation.kind](generation, setting)
        if not generation.stream:
            return await self._whole(asking, writer)
        first = await asking.open(0)
        if first.status != OK:
            raise await _refusal(asking, first)
        return Translation(
            asking,
            first,
            writer,
            threads=self._threads,
            aborts=self._aborts,
            metrics=self._metrics,
        ).response

    async def _whole(self, asking: Asking, writer: Writer) -> UpstreamResponse:
        """The whole answer, as the client gets it."""

        async def one(prompt: int) -> _Read:
            response = await asking.open(prompt)
            if response.status != OK:
                raise await _refusal(asking, response)
            try:
                return await self._read(asking, response, writer, prompt)
            finally:
                response.abort()

        read = await together(len(asking.generation.prompts), one)
        generated = [each.generated for each in read]
        body = await self._written(writer, generated, sum(each.size for each in read))
        first = read[0].response
        told = without(beside_another_body(first.headers), {b"transfer-encoding"})
        length = (b"Content-Length", b"%d" % len(body))
        kind = (b"Content-Type", b"application/json")
        return whole(first, [*told, kind, length], body)

    async def _read(
        self, asking: Asking, response: UpstreamResponse, writer: Writer, prompt: int
    ) -> "_Read":
        """What was generated for a prompt."""
        if not asking.stream:
            body = await response.read(LONGEST_ANSWER)
            return _Read(response=response, generated=decoded(body), size=len(body))
        generation = asking.generation
        ids = generation.prompts[prompt].tail
        collected, size = Collected(writer, ids, generation.choices), 0

        async def take(events: bytes) -> bool:
            nonlocal size
            size += len(events)
            if is_quick(events, collected.kept):
                return collected.feed(events)
            return await self._threads.run(lambda: collected.feed(events), begun=True)

        await follow(response, take, lambda: self._aborts.tell(asking, prompt))
        return _Read(response=response, generated=collected.response(), size=size)

    async def _written(self, writer: Writer, generated: list[Json], size: int) -> bytes:
        """The answer, of JSON that had `size` bytes."""

        def write() -> bytes:
            return msgspec.json.encode(writer.whole(generated))

        if size <= SMALL:
            return write()
        return await self._threads.run(write, begun=True)


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt's whole answer, and how many bytes of JSON it came in."""

    response: UpstreamResponse
    generated: Json
    size: int


async def _refusal(asking: Asking, response: UpstreamResponse) -> Refused:
    """An answer that is none; it is read where it may have to wait, or be of stops."""
    generation = asking.generation
    of_stops = response.status == REFUSALS and generation.stops and asking.stops
    if not of_stops and len(generation.prompts) == 1:
        return Refused(response, stops=False)
    said = await response.read(LONGEST_ERROR)
    told = whole(response, response.headers, said)
    return Refused(told, stops=of_stops and NO_STOPS in said)


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
