"""Derendering: an engine's ids to the choices of an OpenAI answer.

What the engine answered is taken as it has been checked (`derender_request.py`).
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec

from render.body import Json
from render.derender_choice import Asked, Choice
from render.derender_ends import end_ids
from render.derender_logprobs import chat_logprobs, completion_logprobs
from render.derender_prompt import Prompt
from render.detokenizer import Vocabulary
from render.encoder import Encoder
from render.model import Model
from render.parsers.events import Call, Event, Text
from render.parsers.formats import find_format
from render.parsers.marks import Marks


class Parsers(msgspec.Struct, frozen=True):
    """The parsers of a model's answers, by name; both may be missing."""

    reasoning: str | None = None
    tools: str | None = None


class Derenderer:
    """Derenders one model's answers with one pair of parsers. Safe in several threads.

    Raises KeyError for a parser that there is not.
    """

    def __init__(self, vocabulary: Vocabulary, model: Model, parsers: Parsers) -> None:
        self.vocabulary = vocabulary
        self.parsers = parsers
        self.format = find_format(parsers.reasoning, parsers.tools)
        self.marks: Marks | None = None
        if self.format is not None:
            self.marks = self.format.marks(vocabulary.added_ids)
        self._end_ids = end_ids(model, vocabulary.added_ids)

    def asked(self, request: Mapping[str, object] | None, *, chat: bool) -> Asked:
        """What a request, whose fields were read, wants; of chats, they are parsed."""
        if request is None:
            return Asked(stop_ids=self._end_ids)
        return asked_of(
            request,
            self._end_ids,
            parsed=chat and self.format is not None,
            has_tools=self.parsers.tools is not None,
        )

    def choice(self, asked: Asked, prompt: Prompt) -> Choice:
        """A choice of an answer to a prompt; its ids come piece by piece."""
        return Choice(self.vocabulary, self.format, self.marks, asked, prompt)

    def chat_choice(self, generated: Json, asked: Asked, prompt: Prompt) -> "Message":
        """A whole choice of a chat."""
        choice = self.choice(asked, prompt)
        events = choice.feed(generated["token_ids"])
        ending = choice.end(generated["finish_reason"], generated["stop_reason"])
        return Message(
            events=joined([*events, *ending.events]),
            finish_reason=ending.finish_reason,
            stop_reason=ending.stop_reason,
            logprobs=chat_logprobs(self.vocabulary.pieces, generated["logprobs"]),
            reasoning_tokens=choice.reasoning_tokens,
        )

    def completion_choice(self, generated: Json, asked: Asked, prompt: Prompt) -> Json:
        """A whole choice of a completion, without its index."""
        message = self.chat_choice(generated, asked, prompt)
        return {
            "text": "".join(e.text for e in message.events if isinstance(e, Text)),
            "logprobs": completion_logprobs(message.logprobs),
            "finish_reason": message.finish_reason,
            "stop_reason": message.stop_reason,
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "routed_experts": None,
        }


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A whole choice of a chat: its text and calls, joined, and how it ended."""

    events: list[Event]
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: Json | None
    reasoning_tokens: int = 0

    def text(self, kind: str) -> str | None:
        """The reasoning or the content; None if there is none."""
        texts = (e.text for e in self.events if isinstance(e, Text) and e.kind == kind)
        return "".join(texts) or None

    @property
    def calls(self) -> list[Call]:
        """The tool calls."""
        return [event for event in self.events if isinstance(event, Call)]


def joined(events: Sequence[Event]) -> list[Event]:
    """Events with neighbouring texts of one kind made one."""
    out: list[Event] = []
    run: list[Text] = []
    for event in events:
        if run and not (isinstance(event, Text) and event.kind == run[0].kind):
            out.append(Text(run[0].kind, "".join(text.text for text in run)))
            run = []
        if isinstance(event, Text):
            run.append(event)
        else:
            out.append(event)
    if run:
        out.append(Text(run[0].kind, "".join(text.text for text in run)))
    return out


def asked_of(
    request: Mapping[str, object],
    end_ids: frozenset[int],
    *,
    parsed: bool,
    has_tools: bool,
) -> Asked:
    """What a request wants of its answer, from its fields."""
    stop = request.get("stop") or ()
    stops = (stop,) if isinstance(stop, str) else tuple(map(str, _list(stop)))
    stop_ids = {i for i in _list(request.get("stop_token_ids")) if isinstance(i, int)}
    ignored = end_ids if request.get("ignore_eos") else frozenset[int]()
    tools = request.get("tools")
    choice = request.get("tool_choice") or "auto"
    named = _named(choice)
    minimum = request.get("min_tokens")
    kwargs = request.get("chat_template_kwargs")
    return Asked(
        stops=stops,
        stop_ids=(end_ids - ignored) | stop_ids,
        include_stop=bool(request.get("include_stop_str_in_output")),
        min_tokens=minimum if isinstance(minimum, int) else 0,
        skip_special_tokens=bool(request.get("skip_special_tokens", True)),
        parsed=parsed,
        calls=has_tools and bool(tools) and choice != "none",
        forced=has_tools and (choice == "required" or named is not None),
        named=named,
        tools=tools,
        variables=kwargs if isinstance(kwargs, dict) else {},
    )


def _named(choice: object) -> str | None:
    """The tool that a request's `tool_choice` names."""
    if not isinstance(choice, dict):
        return None
    function = choice.get("function", choice)
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


class Derendering:
    """What a Renderer derenders; it has the tokenizer and the model."""

    model: Model
    _encoder: Encoder

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer's ids as text."""
        return self._encoder.texts

    @cached_property
    def _derenderers(self) -> dict[Parsers, Derenderer]:
        return {}

    def derenderer(self, parsers: Parsers) -> Derenderer:
        """What derenders with these parsers; raises KeyError for one there is not."""
        known = self._derenderers.get(parsers)
        if known is None:
            known = Derenderer(self.vocabulary, self.model, parsers)
            self._derenderers[parsers] = known
        return known

    def derender_chat(
        self,
        token_ids: Sequence[int],
        *,
        chat_request: Mapping[str, object] | None = None,
        prompt_ids: Sequence[int] | None = None,
        parsers: Parsers | None = None,
        finish_reason: str | None = "stop",
    ) -> Message:
        """One choice of a chat: reasoning, content and calls of its ids.

        Without a `chat_request` it is plain text. Raises KeyError for a parser that
        there is not.
        """
        derenderer = self.derenderer(parsers or Parsers())
        asked = derenderer.asked(chat_request, chat=True)
        generated = _generated(token_ids, finish_reason)
        return derenderer.chat_choice(generated, asked, Prompt(prompt_ids))

    def derender_completion(
        self,
        token_ids: Sequence[int],
        *,
        completion_request: Mapping[str, object] | None = None,
        prompt_ids: Sequence[int] | None = None,
        finish_reason: str | None = "stop",
    ) -> str:
        """The text of one choice of a completion; it is never parsed."""
        derenderer = self.derenderer(Parsers())
        asked = derenderer.asked(completion_request, chat=False)
        generated = _generated(token_ids, finish_reason)
        message = derenderer.chat_choice(generated, asked, Prompt(prompt_ids))
        return message.text("content") or ""


def _generated(token_ids: Sequence[int], finish_reason: str | None) -> Json:
    return {
        "token_ids": token_ids,
        "finish_reason": finish_reason,
        "stop_reason": None,
        "logprobs": None,
    }
