"""Runs the jobs of one call and writes its answer, whole or as a stream of events."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from aiohttp import web

from simworker.answers import Answer
from simworker.engine import Job
from simworker.hashing import Identity
from simworker.runner import Runner
from simworker.vllm import shapes
from simworker.vllm.calls import Call
from simworker.vllm.errors import json_answer
from simworker.vllm.planning import Task


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change from call to call."""

    runner: Runner
    block_size: int
    fingerprint: str
    tell_cached: bool


class _Line:
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
        self._head = shapes.Head(
            id=f"{self.id_prefix}{call.request_id}",
            created=int(time.time()),
            model=model,
            fingerprint=service.fingerprint,
        )
        pairs = [(task, answer) for task in tasks for answer in task.answers]
        self._lines = [
            _Line(index, task, answer, _job(call, task, answer, identity))
            for index, (task, answer) in enumerate(pairs)
        ]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Generate, and answer as the call asked. Leaving early aborts the jobs."""
        if self._call.stream:
            return await self._stream(request)
        jobs = [line.job for line in self._lines]
        async with self._service.runner.generate(jobs, every_token=False) as run:
            await run.changed()
        choices = [
            self._part(line, 0, line.job.output_tokens, whole=True)
            for line in self._lines
        ]
        return json_answer(self._whole(choices, self._counts()))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.headers["Content-Type"] = "text/event-stream; charset=utf-8"
        await response.prepare(request)
        jobs = [line.job for line in self._lines]
        async with self._service.runner.generate(jobs, every_token=True) as run:
            while any(line.sent < line.job.output_tokens for line in self._lines):
                await run.changed()
                events = [event for line in self._lines for event in self._news(line)]
                if events:
                    await response.write(b"".join(map(shapes.sse, events)))
        await response.write(self._ending())
        await response.write_eof()
        return response

    def _news(self, line: _Line) -> Iterator[shapes.Json]:
        start, end = line.sent, line.job.produced
        if start == end:
            return
        line.sent = end
        if not start:
            yield from self._opening(line)
        part = self._part(line, start, end, whole=False)
        yield self._chunk([self._delta(part)], **self._running(line, end))

    def _part(self, line: _Line, start: int, end: int, *, whole: bool) -> shapes.Choice:
        answer, ids = line.answer, self._call.return_token_ids
        ends = end == len(answer.token_ids)
        logprobs = self._logprobs(answer, start, end) if self._call.logprobs else None
        return shapes.Choice(
            index=line.index,
            text="".join(answer.pieces[start:end]),
            finish_reason=answer.finish_reason if ends else "",
            stop_reason=answer.stop_reason if ends else None,
            token_ids=answer.token_ids[start:end] if ids else None,
            logprobs=logprobs,
            prompt_ids=line.task.prompt_ids if ids and (whole or not start) else None,
        )

    def _ending(self) -> bytes:
        if not self._call.include_usage:
            return shapes.DONE
        usage = self._counts().stream_usage()
        fingerprint = self._head.fingerprint
        event = self._chunk([], usage=usage, system_fingerprint=fingerprint)
        return shapes.sse(event) + shapes.DONE

    def _counts(self) -> shapes.Counts:
        prompt = sum(len(task.prompt_ids) for task in self._tasks)
        # With several prompts the engine reports the hit of the last one.
        last = self._tasks[-1]
        first_choice = self._lines[-len(last.answers)].job
        cached = first_choice.cached_tokens or 0
        return shapes.Counts(
            prompt=prompt,
            completion=sum(line.job.output_tokens for line in self._lines),
            cached=cached if self._service.tell_cached else None,
            created_cache=self._created(len(last.prompt_ids), cached),
        )

    def _running(self, line: _Line, completion: int) -> dict[str, Any]:
        if not self._call.continuous_usage:
            return {}
        return {"usage": self._counts().running_usage(completion)}

    # --- what the endpoints do differently

    @abstractmethod
    def _whole(
        self, choices: list[shapes.Choice], counts: shapes.Counts
    ) -> shapes.Json:
        """The body of an answer that is not streamed."""

    def _opening(self, line: _Line) -> Iterator[shapes.Json]:
        """Events before the first tokens of a choice."""
        yield from ()

    @abstractmethod
    def _chunk(self, choices: list[shapes.Json], **more: Any) -> shapes.Json:
        """One event of a stream."""

    @abstractmethod
    def _delta(self, part: shapes.Choice) -> shapes.Json:
        """The choice of an event that brings tokens."""

    def _created(self, prompt_tokens: int, cached: int) -> int | None:
        """Prompt tokens newly put into the cache; None where it is not told."""
        return None

    @abstractmethod
    def _logprobs(self, answer: Answer, start: int, end: int) -> shapes.Json:
        """The `logprobs` of some tokens."""


class ChatExchange(Exchange):
    """`/v1/chat/completions`."""

    id_prefix = "chatcmpl-"

    def _whole(
        self, choices: list[shapes.Choice], counts: shapes.Counts
    ) -> shapes.Json:
        ids = self._tasks[0].prompt_ids if self._call.return_token_ids else None
        return shapes.chat_answer(self._head, choices, counts, ids)

    def _opening(self, line: _Line) -> Iterator[shapes.Json]:
        ids = line.task.prompt_ids if self._call.return_token_ids else None
        more = self._running(line, 0) | {"prompt_token_ids": ids, "prompt_text": None}
        yield self._chunk([shapes.role_choice(line.index)], **more)

    def _chunk(self, choices: list[shapes.Json], **more: Any) -> shapes.Json:
        return shapes.chat_chunk(self._head, choices, **more)

    def _delta(self, part: shapes.Choice) -> shapes.Json:
        return shapes.chat_delta(part)

    def _created(self, prompt_tokens: int, cached: int) -> int | None:
        size = self._service.block_size
        return prompt_tokens // size * size - cached

    def _logprobs(self, answer: Answer, start: int, end: int) -> shapes.Json:
        wanted = int(self._call.body.get("top_logprobs") or 0)
        return shapes.chat_logprobs(answer.pieces[start:end], top=wanted > 0)


class CompletionExchange(Exchange):
    """`/v1/completions`."""

    id_prefix = "cmpl-"

    def _whole(
        self, choices: list[shapes.Choice], counts: shapes.Counts
    ) -> shapes.Json:
        return shapes.completion_answer(self._head, choices, counts)

    def _chunk(self, choices: list[shapes.Json], **more: Any) -> shapes.Json:
        return shapes.completion_chunk(self._head, choices, **({"usage": None} | more))

    def _delta(self, part: shapes.Choice) -> shapes.Json:
        return shapes.completion_delta(part)

    def _logprobs(self, answer: Answer, start: int, end: int) -> shapes.Json:
        offset = sum(map(len, answer.pieces[:start]))
        return shapes.completion_logprobs(answer.pieces[start:end], offset)


def _job(call: Call, task: Task, answer: Answer, identity: Identity) -> Job:
    return Job(
        task.prompt_ids,
        answer.token_ids,
        identity=identity,
        read_cache=call.read_cache,
    )
