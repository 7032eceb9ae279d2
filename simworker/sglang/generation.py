"""The answers of `/v1/chat/completions` and `/v1/completions` of SGLang."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property

from render.fields import read_fields
from simworker.answers import Answer
from simworker.exchange import Exchange, Json, Line, Part
from simworker.sglang import shapes
from simworker.sglang.fields import DETAILS


class SglangExchange(Exchange):
    """What chat and completions have in common; an id has no prefix."""

    kind = ""
    event_kind = ""

    @cached_property
    def _head(self) -> shapes.Head:
        return shapes.Head(id=self._id, created=self._created, model=self._model)

    @property
    def _used(self) -> Json:
        told = sum(self._cached_tokens) if self._service.tell_cached else 0
        return shapes.usage(self._prompt_tokens, self._output_tokens, told)

    @property
    def _sglext(self) -> Json | None:
        if not read_fields(self._call.body, DETAILS)["return_cached_tokens_details"]:
            return None
        return shapes.cached_details(self._cached_tokens[0])

    def _whole(self, parts: list[Part]) -> Json:
        pairs = zip(parts, self._lines, strict=True)
        choices = [self._choice(part, _matched(line)) for part, line in pairs]
        return shapes.answer(self._head, self.kind, choices, self._used, self._sglext)

    def _running(self, line: Line) -> Json | None:
        """The `usage` of an event in mid-stream: without cached tokens."""
        if not self._call.continuous_usage:
            return None
        return shapes.usage(len(line.task.prompt_ids), line.sent, 0)

    def _closing(self) -> Iterator[Json]:
        end = self._head.begin(self.event_kind, [])
        if self._sglext is not None:
            yield end | {"usage": None, "sglext": self._sglext}
        if self._call.include_usage:
            yield end | {"usage": self._used}

    @abstractmethod
    def _choice(self, part: Part, matched: object) -> Json:
        """One choice of an answer that is not streamed."""


class ChatExchange(SglangExchange):
    """`/v1/chat/completions`: why a choice ended comes after all that was said."""

    kind = "chat.completion"
    event_kind = "chat.completion.chunk"

    def _choice(self, part: Part, matched: object) -> Json:
        return shapes.chat_choice(part, matched)

    def _event(self, choice: Json, used: Json | None = None) -> Json:
        event = self._head.begin(self.event_kind, [choice])
        return event if used is None else event | {"usage": used}

    def _opening(self, line: Line) -> Iterator[Json]:
        delta = {"role": "assistant", "content": ""}
        yield self._event(shapes.delta_choice(line.index, delta))

    def _tokens(self, line: Line, part: Part) -> Iterator[Json]:
        if part.text or part.token_ids:
            choice = shapes.delta_choice(line.index, {"content": part.text}, part=part)
            yield self._event(choice, self._running(line))

    def _closing(self) -> Iterator[Json]:
        for line in self._lines:
            choice = shapes.delta_choice(
                line.index,
                {},
                finish_reason=line.answer.finish_reason,
                matched=_matched(line),
            )
            yield self._event(choice)
        yield from super()._closing()

    def _logprobs(self, answer: Answer, start: int, end: int) -> Json:
        top = bool(self._call.body.get("top_logprobs"))
        return shapes.chat_logprobs(answer.pieces[start:end], top=top)


class CompletionExchange(SglangExchange):
    """`/v1/completions`."""

    kind = event_kind = "text_completion"

    def _choice(self, part: Part, matched: object) -> Json:
        return shapes.text_choice(part, matched)

    def _tokens(self, line: Line, part: Part) -> Iterator[Json]:
        matched = _matched(line) if part.finish_reason else None
        event = self._head.begin(self.event_kind, [shapes.text_choice(part, matched)])
        yield event | {"usage": self._running(line)}

    def _logprobs(self, answer: Answer, start: int, end: int) -> Json:
        return shapes.text_logprobs(answer.pieces[start:end])


def _matched(line: Line) -> str | int | None:
    """What ended a choice: a stop string, or an id, that of the end of text too."""
    answer = line.answer
    if answer.finish_reason != "stop" or answer.stop_reason is not None:
        return answer.stop_reason
    return answer.token_ids[-1]
