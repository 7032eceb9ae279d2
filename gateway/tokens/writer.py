"""What all kinds of answers have in common: their head, their counts, their choices.

A writer turns what a worker generated into what the client asked for, whole or event by
event. It does no I/O.
"""

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import msgspec

from gateway.errors import MalformedAnswer
from gateway.request.sse import event
from gateway.tokens import logprobs
from gateway.tokens.generated import Chunk, read_whole
from gateway.tokens.generation import Generation
from gateway.tokens.line import Line, Piece
from render.body import Json
from render.derender import Derenderer
from render.derender_choice import Asked
from render.derender_prompt import Prompt
from router.request import Usage
from router.worker import Worker

DONE = b"[DONE]"


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What every event of an answer repeats."""

    id: str
    created: int
    model: str
    fingerprint: str | None


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers, and how: what does not come with the ids.

    `stops`: stop strings are known here only, the engine has none.
    """

    request_id: str
    model: str
    fingerprint: str | None
    block_size: int
    stops: bool

    @classmethod
    def of(
        cls, worker: Worker, generation: Generation, request_id: str, *, stops: bool
    ) -> "Setting":
        """For a request that a worker answers."""
        asked = generation.asked.get("model") or generation.service.name
        name = worker.names.get(asked)
        model = asked
        if name is not None and name.adapter is None:
            same = (n for n, other in worker.names.items() if other == name)
            model = next(same, asked)
        return cls(
            request_id=request_id,
            model=model,
            fingerprint=fingerprint(worker),
            block_size=worker.block_size,
            stops=stops,
        )


def fingerprint(worker: Worker) -> str | None:
    """What stands for the worker's own: its engine, version, and what it serves."""
    if worker.version is None:
        return None
    served = repr((worker.url, sorted(worker.names))).encode()
    digest = hashlib.blake2b(served, digest_size=4).hexdigest()
    return f"{worker.engine or 'vllm'}-{worker.version}-{digest}"


class Counts:
    """The tokens of an answer, as the worker told them or as they were counted."""

    def __init__(self, prompt_tokens: Sequence[int], block_size: int) -> None:
        self._prompts = prompt_tokens
        self._block_size = block_size
        self.told: dict[int, Json] = {}
        """What the worker said, by prompt."""

    @property
    def prompt(self) -> int:
        """Tokens of all prompts."""
        return sum(self._prompts)

    @property
    def cached(self) -> int | None:
        """Those the worker found cached, of the last prompt; None: not told."""
        cached = self._details().get("cached_tokens")
        told = type(cached) is int and 0 <= cached <= self._prompts[-1]
        return cached if told else None

    @property
    def created(self) -> int | None:
        """Prompt tokens newly put into the cache, in whole blocks."""
        if self.cached is None:
            return None
        last = self._prompts[-1]
        return max(0, last // self._block_size * self._block_size - self.cached)

    def _details(self) -> Json:
        told = self.told.get(len(self._prompts) - 1) or {}
        return told.get("prompt_tokens_details") or {}

    def usage(self, completion: int) -> Usage:
        """For the books of the router."""
        return Usage(
            prompt_tokens=self.prompt,
            completion_tokens=completion,
            cached_tokens=self.cached,
        )

    def totals(self, completion: int, prompt: int | None = None) -> Json:
        """The counts without details."""
        prompt = self.prompt if prompt is None else prompt
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
        }


class Writer(ABC):
    """One answer, event by event: `feed` it what the worker says, then `end` it.

    A whole answer has a method of its own.
    """

    chat = True
    id_prefix = ""

    def __init__(self, generation: Generation, setting: Setting) -> None:
        self._generation = generation
        self._asked = generation.asked
        self._setting = setting
        self.head = Head(
            id=self.id_prefix + setting.request_id,
            created=int(time.time()),
            model=setting.model,
            fingerprint=setting.fingerprint,
        )
        self._prompts = [Prompt(prompt.tail) for prompt in generation.prompts]
        sizes = [len(prompt) for prompt in generation.prompts]
        self.counts = Counts(sizes, setting.block_size)
        self._lines: dict[int, Line] = {}
        self._n = generation.choices

    @property
    def done(self) -> bool:
        """Whether every choice has ended, whatever the worker goes on to say."""
        return all(map(self.ended, range(len(self._generation.prompts))))

    def ended(self, prompt: int) -> bool:
        """Whether every choice of a prompt has."""
        indices = range(prompt * self._n, (prompt + 1) * self._n)
        lines = (self._lines.get(index) for index in indices)
        return all(line is not None and line.ended for line in lines)

    @property
    def usage(self) -> Usage:
        """The tokens by now."""
        return self.counts.usage(self.output_tokens)

    @property
    def output_tokens(self) -> int:
        """Tokens of all choices."""
        return sum(line.tokens for line in self._lines.values())

    @property
    def reasoning_tokens(self) -> int:
        """Those of them that are reasoning."""
        return sum(line.choice.reasoning_tokens for line in self._lines.values())

    @property
    def kept(self) -> int:
        """Ids that a choice has kept back: with them, a chunk may take long."""
        choices = (line.choice.kept for line in self._lines.values())
        return max(choices, default=0)

    @cached_property
    def derenderer(self) -> Derenderer:
        """What turns the model's ids into text."""
        return self._generation.service.derenderer()

    @cached_property
    def wanted(self) -> Asked:
        """What is asked of a choice."""
        return self.derenderer.asked(self._asked, chat=self.chat)

    def feed(self, prompt: int, chunk: Chunk) -> list[Json]:
        """The events for a chunk about one of the prompts."""
        if chunk.usage is not None:
            self.counts.told[prompt] = chunk.usage
        return [
            answer for given in chunk.choices for answer in self._choice(prompt, given)
        ]

    def take(self, prompt: int, response: Json) -> list[Piece]:
        """The choices of a whole answer to a prompt, in order; or MalformedAnswer."""
        read = read_whole(response, self.shown)
        self.counts.told[prompt] = read["usage"] or {}
        choices = sorted(read["choices"], key=lambda given: int(given["index"]))
        if [given["index"] for given in choices] != [*range(self._n)]:
            raise MalformedAnswer("the worker's answer has not the choices asked for")
        pieces = [self.line(prompt, given).feed(given) for given in choices]
        if not all(piece.ended for piece in pieces):
            raise MalformedAnswer("the worker's answer ended before its choices")
        return pieces

    @cached_property
    def shown(self) -> logprobs.Shown:
        """How many alternatives are shown of a position."""
        by = logprobs.of_chat if self.chat else logprobs.of_completion
        return by(self._asked)

    def index(self, prompt: int, given: Json) -> int:
        """The number of a choice in the client's answer; raises MalformedAnswer."""
        index = int(given["index"])
        if not 0 <= index < self._n:
            raise MalformedAnswer("the worker's answer has more choices than asked for")
        return prompt * self._n + index

    def line(self, prompt: int, given: Json) -> Line:
        """The choice of a prompt; raises MalformedAnswer for one that was not asked."""
        index = self.index(prompt, given)
        line = self._lines.get(index)
        if line is None:
            texts = logprobs.LogprobTexts(
                self.derenderer.vocabulary.pieces,
                lists=not self.chat,
                named=bool(self._asked.get("return_tokens_as_token_ids")),
            )
            choice = self.derenderer.choice(self.wanted, self._prompts[prompt])
            line = Line(choice, texts, watched=self._setting.stops)
            self._lines[index] = line
        return line

    def encoded(self, answer: Json) -> bytes:
        """An event as it is sent."""
        return event(msgspec.json.encode(answer))

    @property
    def last(self) -> bytes:
        """What is sent when all is said."""
        return event(DONE)

    @abstractmethod
    def _choice(self, prompt: int, given: Json) -> list[Json]:
        """The events of some ids of a choice."""

    @abstractmethod
    def end(self) -> list[Json]:
        """The events after all choices."""

    @abstractmethod
    def whole(self, responses: Sequence[Json]) -> Json:
        """The answer of whole answers, one to each prompt; MalformedAnswer."""
