"""Runs the jobs of one call and writes its answer, whole or as a stream of events.

What an answer looks like is the engine's: it says so in the subclasses.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from aiohttp import web

from simworker.answers import Answer
from simworker.errors import encoded, json_answer
from simworker.hashing import Identity
from simworker.job import Job
from simworker.planning import Task
from simworker.rank import Ranks
from simworker.request import Call
from simworker.runner import Generation

Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change from call to call.

    `tell_cached` is whether answers tell the cached tokens; `fingerprint` is vLLM's
    `system_fingerprint`.
    """

    ranks: Ranks
    fingerprint: str
    tell_cached: bool


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Some tokens of one choice, or all; `finish_reason` None while more will come.

    `prompt_ids` and `token_ids` None: not asked for.
    """

    index: int
    text: str
    finish_reason: str | None
    stop_reason: str | int | None
    token_ids: Sequence[int] | None
    logprobs: Json | None = None
    prompt_ids: Sequence[int] | None = None


class Line:
    """One choice on its way out: its job, its answer, how much of it was sent."""

    def __init__(self, index: int, task: Task, answer: Answer, job: Job) -> None:
        self.index = index
        self.task = task
        self.answer = answer
        self.job = job
        self.sent = 0


class Exchange(ABC):
    """One call being answered. Subclasses know the shapes of their endpoint."""

    id_prefix = ""

    def __init__(
        self,
        service: Service,
        call: Call,
        tasks: Sequence[Task],
        *,
        model: str,
        identity: Identity,
    ) -> None:
        self._service = service
        self._call = call
        self._tasks = tasks
        self._model = model
        self._id = f"{self.id_prefix}{call.request_id}"
        self._created = int(time.time())
        self._rank = service.ranks.pick(call.rank)
        self._run: Generation | None = None
        pairs = [(task, answer) for task in tasks for answer in task.answers]
        self._lines = [
            Line(index, task, answer, _job(call, task, answer, identity))
            for index, (task, answer) in enumerate(pairs)
        ]

    @property
    def id(self) -> str:
        """What the request is called inside the engine."""
        return self._id

    def abort(self) -> None:
        """End what is being generated; what has come is the answer."""
        if self._run is not None:
            self._run.stop()

    @property
    def _aborted(self) -> bool:
        return self._run is not None and self._run.stopped

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Generate, and answer as the call asked. Leaving early aborts the jobs."""
        if self._call.stream:
            return await self._stream(request)
        jobs = [line.job for line in self._lines]
        async with self._rank.runner.generate(jobs, every_token=False) as self._run:
            await self._run.changed()
        parts = [
            self._part(line, 0, line.job.produced, whole=True) for line in self._lines
        ]
        return json_answer(self._whole(parts))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.headers["Content-Type"] = "text/event-stream; charset=utf-8"
        await response.prepare(request)
        jobs = [line.job for line in self._lines]
        async with self._rank.runner.generate(jobs, every_token=True) as run:
            self._run = run
            while any(line.sent < line.job.output_tokens for line in self._lines):
                await run.changed()
                events = [event for line in self._lines for event in self._news(line)]
                if events:
                    await response.write(b"".join(map(sse, events)))
                if self._aborted:
                    break
        await response.write(b"".join(map(sse, self._closing())) + DONE)
        await response.write_eof()
        return response

    def _news(self, line: Line) -> Iterator[Json]:
        start, end = line.sent, line.job.produced
        if start == end and not (self._aborted and end < line.job.output_tokens):
            return
        line.sent = end
        if not start:
            yield from self._opening(line)
        yield from self._tokens(line, self._part(line, start, end, whole=False))

    def _part(self, line: Line, start: int, end: int, *, whole: bool) -> Part:
        answer, call = line.answer, self._call
        ends = end == len(answer.token_ids)
        aborted = "abort" if self._aborted else None
        prompt = call.return_prompt_ids and (whole or not start)
        return Part(
            index=line.index,
            text="".join(answer.pieces[start:end]),
            finish_reason=answer.finish_reason if ends else aborted,
            stop_reason=answer.stop_reason if ends else None,
            token_ids=answer.token_ids[start:end] if call.return_token_ids else None,
            logprobs=self._logprobs(answer, start, end) if call.logprobs else None,
            prompt_ids=line.task.prompt_ids if prompt else None,
        )

    # --- what usage is made of

    @property
    def _prompt_tokens(self) -> int:
        return sum(len(task.prompt_ids) for task in self._tasks)

    @property
    def _output_tokens(self) -> int:
        return sum(line.job.output_tokens for line in self._lines)

    @property
    def _cached_tokens(self) -> list[int]:
        """The hit of each prompt: that of its first choice."""
        firsts = self._lines[:: self._call.choices]
        return [line.job.cached_tokens or 0 for line in firsts]

    # --- what the endpoints do differently

    @abstractmethod
    def _whole(self, parts: list[Part]) -> Json:
        """The body of an answer that is not streamed."""

    def _opening(self, line: Line) -> Iterator[Json]:
        """Events before the first tokens of a choice."""
        yield from ()

    @abstractmethod
    def _tokens(self, line: Line, part: Part) -> Iterator[Json]:
        """Events that bring tokens."""

    @abstractmethod
    def _closing(self) -> Iterator[Json]:
        """Events after all tokens."""

    @abstractmethod
    def _logprobs(self, answer: Answer, start: int, end: int) -> Json:
        """The `logprobs` of some tokens."""


def sse(event: Json) -> bytes:
    """One server-sent event."""
    return b"data: %b\n\n" % encoded(event)


def _job(call: Call, task: Task, answer: Answer, identity: Identity) -> Job:
    return Job(
        task.prompt_ids,
        answer.token_ids,
        identity=identity,
        read_cache=call.read_cache,
        report_hits=call.report_hits,
    )
