"""One choice of an answer on its way from ids to text, with what usage tells of it."""

from collections.abc import Sequence

import msgspec

from gateway.tokens.logprobs import LogprobTexts, cut
from render.body import Json
from render.derender_choice import Choice
from render.parsers.events import Event


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Some ids of a choice, and what they say; `ended`: nothing more comes."""

    events: list[Event]
    token_ids: Sequence[int]
    logprobs: Json | None
    finish_reason: str | None
    stop_reason: int | str | None
    ended: bool


class Line:
    """One choice. `watched`: its stop strings are known here only."""

    def __init__(self, choice: Choice, texts: LogprobTexts, *, watched: bool) -> None:
        self.choice = choice
        self.tokens = 0
        self.calls = 0
        self.ended = False
        self._texts = texts
        self._watched = watched

    def feed(self, given: Json) -> Piece:
        """What the next ids bring; `given` is a choice of the engine's, checked."""
        ids = given["token_ids"] or []
        events, ids = self._fed(ids)
        self.tokens += len(ids)
        finish, stop = given["finish_reason"], given["stop_reason"]
        if finish is not None or self.choice.stopped:
            ending = self.choice.end(finish, stop)
            events = [*events, *ending.events]
            finish, stop = ending.finish_reason, ending.stop_reason
            self.ended = True
        logprobs = cut(given["logprobs"], len(ids))
        return Piece(
            events=events,
            token_ids=ids,
            logprobs=self._texts.feed(logprobs, ids),
            finish_reason=finish,
            stop_reason=stop,
            ended=self.ended,
        )

    def _fed(self, ids: Sequence[int]) -> tuple[list[Event], Sequence[int]]:
        """The events, and the ids up to the one that completed a stop string."""
        if not self._watched:
            return self.choice.feed(ids), ids
        events: list[Event] = []
        for count, token_id in enumerate(ids, start=1):
            events += self.choice.feed([token_id])
            if self.choice.stopped:
                return events, ids[:count]
        return events, ids
