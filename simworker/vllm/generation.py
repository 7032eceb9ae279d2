"""The answers of `/v1/chat/completions` and `/v1/completions`, as vLLM gives them."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from simworker.answers import Answer
from simworker.exchange import Exchange, Json, Line, Part
from simworker.logprobs import completion_logprobs
from simworker.vllm import shapes


class VllmExchange(Exchange):
    """What chat and completions have in common."""

    @cached_property
    def _head(self) -> shapes.Head:
        return shapes.Head(
            id=self._id,
            created=self._created,
            model=self._model,
            fingerprint=self._service.fingerprint,
        )

    def _tokens(self, line: Line, part: Part) -> Iterator[Json]:
        more = self._running(line.sent)
        if part.finish_reason and not self._call.include_usage:
            more["system_fingerprint"] = self._head.fingerprint
        yield self._chunk([self._delta(part)], **more)

    def _closing(self) -> Iterator[Json]:
        if self._call.include_usage:
            usage = self._counts().stream_usage()
            fingerprint = self._head.fingerprint
            yield self._chunk([], usage=usage, system_fingerprint=fingerprint)

    def _counts(self) -> shapes.Counts:
        # With several prompts the engine reports the hit of the last one.
        cached, last = self._cached_tokens[-1], self._tasks[-1]
        return shapes.Counts(
            prompt=self._prompt_tokens,
            completion=self._output_tokens,
            cached=cached if self._service.tell_cached else None,
            created_cache=self._created_cache(len(last.prompt_ids), cached),
        )

    def _running(self, completion: int) -> dict[str, Any]:
        if not self._call.continuous_usage:
            return {}
        return {"usage": self._counts().running_usage(completion)}

    def _created_cache(self, prompt_tokens: int, cached: int) -> int | None:
        """Prompt tokens newly put into the cache; None where it is not told."""
        return None

    @abstractmethod
    def _chunk(self, choices: list[Json], **more: Any) -> Json:
        """One event of a stream."""

    @abstractmethod
    def _delta(self, part: Part) -> Json:
        """The choice of an event that brings tokens."""


class ChatExchange(VllmExchange):
    """`/v1/chat/completions`."""

    id_prefix = "chatcmpl-"

    def _whole(self, parts: list[Part]) -> Json:
        ids = self._tasks[0].prompt_ids if self._call.return_prompt_ids else None
        return shapes.chat_answer(self._head, parts, self._counts(), ids)

    def _opening(self, line: Line) -> Iterator[Json]:
        ids = line.task.prompt_ids if self._call.return_prompt_ids else None
        more = self._running(0) | {"prompt_token_ids": ids, "prompt_text": None}
        yield self._chunk([shapes.role_choice(line.index)], **more)

    def _chunk(self, choices: list[Json], **more: Any) -> Json:
        return shapes.chat_chunk(self._head, choices, **more)

    def _delta(self, part: Part) -> Json:
        return shapes.chat_delta(part)

    def _created_cache(self, prompt_tokens: int, cached: int) -> int | None:
        size = self._service.ranks.block_size
        return prompt_tokens // size * size - cached

    def _logprobs(self, answer: Answer, start: int, end: int) -> Json:
        wanted = int(self._call.body.get("top_logprobs") or 0)
        return shapes.chat_logprobs(answer.pieces[start:end], top=wanted > 0)


class CompletionExchange(VllmExchange):
    """`/v1/completions`."""

    id_prefix = "cmpl-"

    def _whole(self, parts: list[Part]) -> Json:
        return shapes.completion_answer(self._head, parts, self._counts())

    def _chunk(self, choices: list[Json], **more: Any) -> Json:
        return shapes.completion_chunk(self._head, choices, **more)

    def _delta(self, part: Part) -> Json:
        return shapes.completion_delta(part)

    def _logprobs(self, answer: Answer, start: int, end: int) -> Json:
        offset = sum(map(len, answer.pieces[:start]))
        return completion_logprobs(answer.pieces[start:end], offset)
