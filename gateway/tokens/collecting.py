"""An engine's stream collected to the whole answer it amounts to.

For clients that want a whole answer where the engine cannot look for stop strings: it
is read as it comes, so that the engine can be stopped where one is found.
"""

from collections.abc import Sequence

from gateway.errors import MalformedAnswer
from gateway.request.sse import data_of
from gateway.tokens.generated import read_chunk
from gateway.tokens.logprobs import cut
from gateway.tokens.writer import DONE, Writer
from render.body import Json
from render.derender_choice import Choice
from render.derender_prompt import Prompt


class Collected:
    """One prompt's choices, as they come."""

    def __init__(self, writer: Writer, prompt_ids: Sequence[int], choices: int) -> None:
        self._writer = writer
        self._prompt = Prompt(prompt_ids)
        self._wanted = choices
        self._choices: dict[int, Choice] = {}
        self._found: dict[int, Json] = {}
        self._usage: Json | None = None

    @property
    def done(self) -> bool:
        """Whether all choices have ended."""
        ended = [one for one in self._found.values() if one["finish_reason"]]
        return len(ended) >= self._wanted

    @property
    def kept(self) -> int:
        """Ids that a choice has kept back: with them, a chunk may take long."""
        return max((choice.kept for choice in self._choices.values()), default=0)

    def feed(self, events: bytes) -> bool:
        """Take whole events; whether all is there. MalformedAnswer for what is none."""
        for data in data_of(events):
            if data != DONE:
                self._read(data)
        return self.done

    def _read(self, data: bytes) -> None:
        chunk = read_chunk(data, self._writer.shown)
        if chunk.error:
            raise MalformedAnswer("the worker broke its answer off")
        self._usage = chunk.usage or self._usage
        for given in chunk.choices:
            self._take(given)

    def response(self) -> Json:
        """The whole answer."""
        choices = [self._found[index] for index in sorted(self._found)]
        return {"choices": choices, "usage": self._usage}

    def _take(self, given: Json) -> None:
        index = self._writer.index(0, given)
        found = self._found.setdefault(
            index,
            {
                "index": index,
                "token_ids": [],
                "logprobs": None,
                "finish_reason": None,
                "stop_reason": None,
            },
        )
        if found["finish_reason"]:
            return
        writer = self._writer
        choice = self._choices.get(index)
        if choice is None:
            choice = writer.derenderer.choice(writer.wanted, self._prompt)
            self._choices[index] = choice
        ids = self._until_stopped(choice, given["token_ids"] or [])
        found["token_ids"] += ids
        kept = cut(given["logprobs"], len(ids))
        if kept is not None:
            found["logprobs"] = found["logprobs"] or {"content": []}
            found["logprobs"]["content"] += kept["content"]
        found["finish_reason"] = "stop" if choice.stopped else given["finish_reason"]
        found["stop_reason"] = given["stop_reason"]

    def _until_stopped(self, choice: Choice, ids: Sequence[int]) -> Sequence[int]:
        for count, token_id in enumerate(ids, start=1):
            choice.feed([token_id])
            if choice.stopped:
                return ids[:count]
        return ids
