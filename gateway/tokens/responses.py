"""A response's answer of what a worker generated, in the words of vLLM's own route."""

from collections.abc import Iterator, Sequence
from functools import cached_property

from gateway.tokens import response_record as records
from gateway.tokens.chat import new_call_id
from gateway.tokens.generation import Generation
from gateway.tokens.line import Piece
from gateway.tokens.writer import Setting, Writer
from render.body import Json
from render.derender import joined
from render.derender_choice import Asked
from render.parsers.events import Call, Event, Text
from render.responses import chat_body

COMPLETED, IN_PROGRESS, INCOMPLETE = "completed", "in_progress", "incomplete"


class ResponsesWriter(Writer):
    """`/v1/responses`; nothing is stored."""

    def __init__(self, generation: Generation, setting: Setting) -> None:
        super().__init__(generation, setting)
        sampling = generation.requests[0]["sampling_params"]
        self._record = records.record(
            self._asked,
            sampling,
            id_=self._asked.get("request_id") or records.new_id("resp"),
            created=self.head.created,
            model=self.head.model,
        )
        self._items: list[Json] = []
        self._open: _Item | None = None
        self._number = 0
        self._logprobs: list[Json] = []
        self._calls = 0
        self._finish: str | None = None

    @cached_property
    def wanted(self) -> Asked:
        """What is asked of the answer, by the chat that was rendered."""
        chat = chat_body(self._asked)
        kept: Json = {k: chat[k] for k in ("tools", "tool_choice") if k in chat}
        asked: Json = {**self._asked, "tools": None, "tool_choice": None, **kept}
        return self.derenderer.asked(asked, chat=True)

    # --- whole

    def whole(self, responses: Sequence[Json]) -> Json:
        (response,) = responses
        (piece,) = self.take(0, response)
        self._finish = piece.finish_reason
        logprobs = records.logprobs_of(piece.logprobs)
        for one in self._seen(piece):
            self._items.append(_whole_item(one, logprobs))
        return self._ended()

    def _ended(self) -> Json:
        counts, length = self.counts, self._finish == "length"
        return {
            **self._record,
            "incomplete_details": {"reason": "max_output_tokens"} if length else None,
            "output": self._items,
            "status": INCOMPLETE if length else COMPLETED,
            "usage": records.usage(
                counts.prompt,
                counts.cached or 0,
                counts.created or 0,
                self.output_tokens,
                self.reasoning_tokens,
            ),
        }

    def _seen(self, piece: Piece) -> Iterator[Event]:
        """The events that the client is to see."""
        hides = self.wanted.parsed and not self._asked.get("include_reasoning", True)
        single = self._asked.get("parallel_tool_calls") is False
        for one in joined(piece.events):
            if isinstance(one, Call):
                self._calls += 1
                if not (single and self._calls > 1):
                    yield one
            elif not (hides and one.kind == "reasoning"):
                yield one

    # --- streamed

    def encoded(self, answer: Json) -> bytes:
        return b"event: %b\n" % answer["type"].encode() + super().encoded(answer)

    @property
    def last(self) -> bytes:
        return b""

    def _choice(self, prompt: int, given: Json) -> list[Json]:
        line = self.line(prompt, given)
        if line.ended:
            return []
        events = [] if self._number else [*self._begin()]
        piece = line.feed(given)
        self._finish = piece.finish_reason or self._finish
        # Text may come later than its ids: theirs wait for it.
        self._logprobs += records.logprobs_of(piece.logprobs) or []
        for one in self._seen(piece):
            events += self._turn(one)
            assert self._open is not None  # noqa: S101 - by the turn
            events += map(self._told, self._open.feed(one, self._logprobs))
            self._logprobs = []
        return events

    def _begin(self) -> Iterator[Json]:
        for kind in ("response.created", "response.in_progress"):
            yield self._told({"response": self._record, "type": kind})

    def _turn(self, one: Event) -> list[Json]:
        """The end of one item and the beginning of another, where that is due."""
        if self._open is not None and self._open.goes_on(one):
            return []
        closed = self._close()
        self._open = _Item(one, len(self._items))
        return [*closed, *map(self._told, self._open.begin())]

    def _close(self) -> list[Json]:
        if self._open is None:
            return []
        ending = [self._told(one) for one in self._open.end()]
        self._items.append(self._open.done)
        self._open = None
        return ending

    def end(self) -> list[Json]:
        begun = [] if self._number else [*self._begin()]
        closed = self._close()
        over = {"response": self._ended(), "type": "response.completed"}
        return [*begun, *closed, self._told(over)]

    def _told(self, given: Json) -> Json:
        """An event with its number, in the order of this route's fields."""
        kind = given.pop("type")
        numbered = {**given, "sequence_number": self._number, "type": kind}
        self._number += 1
        return numbered


class _Item:
    """One item of a stream: reasoning, a message or a call."""

    def __init__(self, first: Event, index: int) -> None:
        self._call = first if isinstance(first, Call) else None
        self._kind = first.kind if isinstance(first, Text) else "call"
        prefix = {"reasoning": "rs", "content": "msg", "call": "fc"}[self._kind]
        self._id = records.new_id(prefix)
        self._name = new_call_id()
        self._place = {"item_id": self._id, "output_index": index}
        self._index = index
        self._text = ""
        self._logprobs: list[Json] = []

    def goes_on(self, one: Event) -> bool:
        """Whether this is more of the same."""
        return isinstance(one, Text) and one.kind == self._kind

    def begin(self) -> Iterator[Json]:
        """That it is there."""
        kind = "response.output_item.added"
        yield {"item": self._shown(""), "output_index": self._index, "type": kind}
        if self._call is None:
            kind = "response.content_part.added"
            yield {
                "content_index": 0,
                **self._place,
                "part": self._part(),
                "type": kind,
            }

    def feed(self, one: Event, logprobs: list[Json]) -> Iterator[Json]:
        """More of it."""
        if isinstance(one, Call):
            self._text = one.arguments
            kind = "response.function_call_arguments.delta"
            yield {"delta": one.arguments, **self._place, "type": kind}
            return
        self._text += one.text
        if self._kind == "reasoning":
            kind = "response.reasoning_text.delta"
            yield {"content_index": 0, "delta": one.text, **self._place, "type": kind}
            return
        self._logprobs += logprobs
        yield {
            "content_index": 0,
            "delta": one.text,
            "item_id": self._id,
            "logprobs": [_without_bytes(entry) for entry in logprobs],
            "output_index": self._index,
            "type": "response.output_text.delta",
        }

    def end(self) -> Iterator[Json]:
        """That it is complete."""
        if self._call is not None:
            kind = "response.function_call_arguments.done"
            name = self._call.name
            yield {"arguments": self._text, **self._place, "type": kind, "name": name}
        else:
            yield self._text_done()
            kind, part = "response.content_part.done", self._part()
            if self._kind == "content":
                part["logprobs"] = self._logprobs or None
            yield {"content_index": 0, **self._place, "part": part, "type": kind}
        kind = "response.output_item.done"
        yield {"item": self.done, "output_index": self._index, "type": kind}

    def _text_done(self) -> Json:
        told: Json = {"content_index": 0, "item_id": self._id}
        name = "reasoning_text"
        if self._kind == "content":
            told["logprobs"], name = [], "output_text"
        told |= {"output_index": self._index, "text": self._text}
        return {**told, "type": f"response.{name}.done"}

    @property
    def done(self) -> Json:
        """The whole item."""
        return self._shown(COMPLETED)

    def _part(self) -> Json:
        if self._kind == "reasoning":
            return {"text": self._text, "type": "reasoning_text"}
        return records.text_part(self._text, [])

    def _shown(self, status: str) -> Json:
        """The item; without a status yet, it is empty."""
        text, status = self._text if status else "", status or IN_PROGRESS
        if self._call is not None:
            return records.call_item(
                self._call, text, id_=self._id, name=self._name, status=status
            )
        if self._kind == "reasoning":
            return records.reasoning_item(text, id_=self._id, status=status)
        part = records.text_part(text, self._logprobs or None)
        parts = [part] if status == COMPLETED else []
        return records.message_item(parts, id_=self._id, status=status)


def _without_bytes(entry: Json) -> Json:
    top = [{k: v for k, v in o.items() if k != "bytes"} for o in entry["top_logprobs"]]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": top}


def _whole_item(one: Event, logprobs: list[Json] | None) -> Json:
    if isinstance(one, Call):
        return records.call_item(
            one,
            one.arguments,
            id_=records.new_id("fc"),
            name=new_call_id(),
            status=COMPLETED,
        )
    if one.kind == "reasoning":
        id_ = records.new_id("rs")
        return records.reasoning_item(one.text, id_=id_, status=None)
    parts = [records.text_part(one.text, logprobs)]
    return records.message_item(parts, id_=records.new_id("msg"), status=COMPLETED)
