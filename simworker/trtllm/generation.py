"""The answers of `/v1/chat/completions` and `/v1/completions` of TensorRT-LLM."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property

from simworker.answers import Answer
from simworker.exchange import Exchange, Json, Line, Part
from simworker.logprobs import completion_logprobs
from simworker.trtllm import shapes


class TrtllmExchange(Exchange):
    """What chat and completions have in common. Cached tokens are always told."""

    @cached_property
    def _head(self) -> shapes.Head:
        return shapes.Head(id=self._id, created=self._created, model=self._model)

    def _used(self, prompt: int, completion: int, cached: int) -> Json:
        told = cached if self._service.tell_cached else None
        return shapes.usage(prompt, completion, told)

    def _used_in_all(self) -> Json:
        cached = sum(self._cached_tokens)
        return self._used(self._prompt_tokens, self._output_tokens, cached)

    def _running(self, line: Line, completion: int) -> Json | None:
        if not self._call.continuous_usage:
            return None
        cached = line.job.cached_tokens or 0
        return self._used(len(line.task.prompt_ids), completion, cached)

    def _tokens(self, line: Line, part: Part) -> Iterator[Json]:
        yield self._event([self._delta(part)], self._running(line, line.sent))

    def _closing(self) -> Iterator[Json]:
        """Each prompt is a request of its own inside, and tells its own usage."""
        if not self._call.include_usage:
            return
        for task, cached in zip(self._tasks, self._cached_tokens, strict=True):
            output = sum(len(answer.token_ids) for answer in task.answers)
            yield self._event([], self._used(len(task.prompt_ids), output, cached))

    @abstractmethod
    def _event(self, choices: list[Json], used: Json | None) -> Json:
        """One event of a stream."""

    @abstractmethod
    def _delta(self, part: Part) -> Json:
        """The choice of an event that brings tokens."""


class ChatExchange(TrtllmExchange):
    """`/v1/chat/completions`."""

    id_prefix = "chatcmpl-"

    def _whole(self, parts: list[Part]) -> Json:
        return shapes.chat_answer(self._head, parts, self._used_in_all())

    def _opening(self, line: Line) -> Iterator[Json]:
        yield self._event([shapes.role_choice(line.index)], self._running(line, 0))

    def _event(self, choices: list[Json], used: Json | None) -> Json:
        return shapes.chat_event(self._head, choices, used)

    def _delta(self, part: Part) -> Json:
        return shapes.chat_delta(part)

    def _logprobs(self, answer: Answer, start: int, end: int) -> Json:
        top = bool(self._call.body.get("top_logprobs"))
        return shapes.chat_logprobs(answer.pieces[start:end], top=top)


class CompletionExchange(TrtllmExchange):
    """`/v1/completions`."""

    id_prefix = "cmpl-"

    def _whole(self, parts: list[Part]) -> Json:
        return shapes.completion_answer(self._head, parts, self._used_in_all())

    def _event(self, choices: list[Json], used: Json | None) -> Json:
        return shapes.completion_event(self._head, choices, used)

    def _delta(self, part: Part) -> Json:
        return shapes.completion_delta(part)

    def _logprobs(self, answer: Answer, start: int, end: int) -> Json:
        offset = sum(map(len, answer.pieces[:start]))
        return completion_logprobs(answer.pieces[start:end], offset)
