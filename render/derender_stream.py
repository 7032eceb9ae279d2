"""An engine's stream of ids to an OpenAI stream, in one pass.

Each choice keeps what its parser keeps back, and nothing else. What is streamed is what
the whole answer would be, up to where pieces of text are cut.
"""

from collections.abc import Callable, Sequence

from render.body import Json
from render.derender import Derenderer, joined
from render.derender_answers import deltas, new_call_id, usage
from render.derender_choice import Choice
from render.derender_logprobs import CONTEXT, chat_logprobs
from render.derender_prompt import Prompt
from render.derender_request import MAX_CHOICES, Bounds
from render.derender_state import merged
from render.refused import RenderRefused

NOTHING: Json = {
    "token_ids": None,
    "finish_reason": None,
    "stop_reason": None,
    "logprobs": None,
}


class _Streamed:
    """One choice of a stream."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.calls = 0
        self.tokens = 0
        self.context: list[int] = []
        self.role_sent = False
        self.ended = False


class ChatStream:
    """One chat's stream. `feed` it the engine's chunks, as they were checked.

    `request` is the chat request that was rendered, None for plain text; `prompt_ids`
    are what the engine was sent.
    """

    def __init__(
        self,
        derenderer: Derenderer,
        request: Json | None,
        *,
        bounds: Bounds,
        model: str,
        created: int,
        prompt_ids: Sequence[int] | None = None,
        prompt_tokens: int | None = None,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._derenderer = derenderer
        self._request = request
        self._asked = derenderer.asked(request, chat=True)
        self._bounds = bounds
        self._model = model
        self._created = created
        self._prompt_ids = prompt_ids
        self._prompt_tokens = prompt_tokens
        self._new_id = new_id
        self._prompt = Prompt(prompt_ids)
        self._choices: dict[int, _Streamed] = {}
        self._id = ""
        self._counted = False

    @property
    def kept(self) -> int:
        """Ids that a choice has kept back: with them, a chunk may take long."""
        choices = (streamed.choice.kept for streamed in self._choices.values())
        return max(choices, default=0)

    def feed(self, chunk: Json) -> list[Json]:
        """The chunks to answer with; raises RenderRefused for ids that are none."""
        self._id = self._id or chunk["request_id"]
        if self._prompt_ids is None and chunk["prompt_token_ids"] is not None:
            self._prompt_ids = chunk["prompt_token_ids"]
            self._prompt = Prompt(self._prompt_ids)
        answers = [
            answer
            for number, given in enumerate(chunk["choices"])
            for answer in self._choice(given, f"choices.{number}")
        ]
        if chunk["usage"] is not None:
            answers += self._counts(chunk["usage"])
        return answers

    def end(self) -> list[Json]:
        """What is left when the engine's stream has ended.

        Counts that it left out, and what choices kept back that it did not end.
        """
        answers = [
            answer
            for index, streamed in self._choices.items()
            if not streamed.ended
            for answer in self._answered(
                {**NOTHING, "index": index}, streamed, last=True
            )
        ]
        options = (self._request or {}).get("stream_options") or {}
        if self._counted or not options.get("include_usage"):
            return answers
        return answers + self._counts({})

    def _choice(self, given: Json, place: str) -> list[Json]:
        index = given["index"]
        streamed = self._choices.get(index)
        if streamed is None:
            if len(self._choices) >= MAX_CHOICES:
                raise RenderRefused(f"more than {MAX_CHOICES} choices")
            streamed = _Streamed(self._derenderer.choice(self._asked, self._prompt))
            self._choices[index] = streamed
        if streamed.ended:
            return []
        ids = given["token_ids"] or []
        self._bounds.check_choice_ids(given, place)
        streamed.tokens += len(ids)
        what = f"token_ids length ({streamed.tokens}) in choice {index}"
        self._bounds.check_length(streamed.tokens, what)
        return self._answered(given, streamed)

    def _answered(
        self, given: Json, streamed: _Streamed, *, last: bool = False
    ) -> list[Json]:
        ids = given["token_ids"] or []
        events = streamed.choice.feed(ids)
        reasons = (given["finish_reason"], given["stop_reason"])
        if last or given["finish_reason"] is not None or streamed.choice.stopped:
            ending = streamed.choice.end(*reasons)
            events = [*events, *ending.events]
            reasons = (ending.finish_reason, ending.stop_reason)
            streamed.ended = True
        shown, streamed.calls = deltas(
            joined(events), self._request, streamed.calls, self._new_id
        )
        pieces = self._derenderer.vocabulary.pieces
        logprobs = chat_logprobs(pieces, given["logprobs"], streamed.context)
        streamed.context = [*streamed.context, *ids][-CONTEXT:]
        delta = merged(shown)
        if not streamed.role_sent:
            streamed.role_sent = True
            delta = {"role": "assistant", "content": "", **delta}
        if not delta and logprobs is None and (last or not streamed.ended):
            return []
        choice = {
            "index": given["index"],
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": reasons[0],
        }
        if reasons[1] is not None:
            choice["stop_reason"] = reasons[1]
        if (self._request or {}).get("return_token_ids"):
            choice["token_ids"] = ids
        return [self._chunk([choice])]

    def _counts(self, counts: Json) -> list[Json]:
        """The chunk of counts, once."""
        self._counted = True
        known = self._prompt_tokens
        if known is None:
            known = counts.get("prompt_tokens")
        if known is None:
            known = len(self._prompt_ids or ())
        completion = counts.get("completion_tokens")
        if completion is None:
            completion = sum(one.tokens for one in self._choices.values())
        shown = usage(known, completion)
        shown["prompt_tokens_details"] = counts.get("prompt_tokens_details")
        return [{**self._chunk([]), "usage": shown}]

    def _chunk(self, choices: list[Json]) -> Json:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }
