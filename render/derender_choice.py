"""One choice of an answer: its ids to events, as they come, in constant memory.

Ids to marked text, to the first stop string, to reasoning, content and calls. What
comes in one piece and what comes in many gives the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from render.derender_prompt import Prompt
from render.derender_reasoning import ReasoningCounter
from render.derender_stops import Stopped, StopStrings
from render.detokenizer import Vocabulary
from render.parsers.answer import AnswerParser
from render.parsers.events import Call, Event, Text
from render.parsers.forced import ForcedCalls
from render.parsers.formats import Format
from render.parsers.marks import Marks
from render.parsers.values import Tools

BATCH = 256  # ids at a time: no step has to copy a long text


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a request wants of its answer. `stop_ids` end an answer and are left out."""

    stops: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    include_stop: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    parsed: bool = False
    calls: bool = False
    forced: bool = False
    named: str | None = None
    tools: object = None
    variables: Mapping[str, object] = {}


class Ending(msgspec.Struct, frozen=True):
    """How a choice ended: the last events, and why."""

    events: list[Event]
    finish_reason: str | None
    stop_reason: int | str | None


class Choice:
    """One choice. Feed it ids, then end it once."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        format: Format | None,
        marks: Marks | None,
        asked: Asked,
        prompt: Prompt,
    ) -> None:
        self._asked = asked
        self._ends: tuple[int, ...] = ()
        self._tokens = 0
        self._stopped: Stopped | None = None
        self.called = False
        self.kept = 0
        """Ids since the last event: to read so many at once may take long."""
        parsed = asked.parsed and format is not None and marks is not None
        by_id = marks.by_id if parsed and marks is not None else {}
        self._detokenizer = vocabulary.detokenizer(
            marks=by_id,
            skip_special_tokens=asked.skip_special_tokens and not parsed,
            prompt_ids=prompt.seeds,
        )
        written: Callable[[str], str] = str
        self._parser: AnswerParser | None = None
        self._counter: ReasoningCounter | None = None
        self._forced = ForcedCalls(asked.named) if parsed and asked.forced else None
        if parsed and format is not None and marks is not None:
            written = marks.written
            self._parser = AnswerParser(
                format,
                marks,
                tools=Tools(asked.tools),
                calls=asked.calls,
                prompt=prompt.tail(vocabulary, marks),
                variables=asked.variables,
            )
            if format.reasoning is not None:
                inside = self._parser.reasons
                self._counter = ReasoningCounter(format.reasoning, marks, inside=inside)
        self._stops = StopStrings(
            asked.stops, include=asked.include_stop, written=written
        )

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found: nothing more comes."""
        return self._stopped is not None

    @property
    def reasoning_tokens(self) -> int:
        """How many of its ids were reasoning."""
        return self._counter.tokens if self._counter is not None else 0

    def feed(self, token_ids: Sequence[int]) -> list[Event]:
        """The events that are certain with these ids."""
        if self._stopped is not None or not token_ids:
            return []
        if self._counter is not None:
            self._counter.feed(token_ids)
        ids: Sequence[int] = (*self._ends, *token_ids) if self._ends else token_ids
        self._ends = ()
        if ids[-1] in self._asked.stop_ids:
            # The last one of an answer is left out, and this may be the last.
            self._ends, ids = (ids[-1],), ids[:-1]
        events = self._fed(ids)
        self.kept = 0 if events else self.kept + len(token_ids)
        return events

    def end(self, finish_reason: str | None, stop_reason: int | str | None) -> Ending:
        """The last events, and how it ended."""
        asked = self._asked
        events: list[Event] = []
        if self._ends and (finish_reason != "stop" or asked.include_stop):
            events += self._fed(self._ends)
        self._ends = ()
        if self._stopped is None:
            events += self._parse(self._stops.end())
        events += self._noted(self._parser.end() if self._parser else [])
        if self._forced is not None:
            events += self._note(self._forced.end())
        if self._stopped is not None:
            finish_reason, stop_reason = "stop", self._stopped.stop
        if self.called and asked.named is None and finish_reason is not None:
            finish_reason = "tool_calls"
        return Ending(events, finish_reason, stop_reason)

    def _fed(self, ids: Iterable[int]) -> list[Event]:
        events: list[Event] = []
        for batch, armed in self._batches(ids):
            text = self._detokenizer.feed(batch)
            certain = self._stops.feed(text, armed=armed)
            if isinstance(certain, Stopped):
                self._stopped = certain
                return events + self._parse(certain.text)
            events += self._parse(certain)
        return events

    def _batches(self, ids: Iterable[int]) -> Iterator[tuple[list[int], bool]]:
        """Ids in pieces, and whether stop strings count in a piece."""
        rest = iter(ids)
        while True:
            unarmed = self._asked.min_tokens - self._tokens
            size = min(BATCH, unarmed) if unarmed > 0 else BATCH
            batch = list(islice(rest, size))
            if not batch:
                return
            self._tokens += len(batch)
            yield batch, unarmed <= 0

    def _parse(self, text: str) -> list[Event]:
        if not text:
            return []
        if self._parser is None:
            return [Text("content", text)]
        return self._noted(self._parser.feed(text))

    def _noted(self, events: list[Event]) -> list[Event]:
        if self._forced is not None:
            events = self._forced.feed(events)
        return self._note(events)

    def _note(self, events: list[Event]) -> list[Event]:
        self.called = self.called or any(isinstance(event, Call) for event in events)
        return events
