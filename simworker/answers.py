"""What a simulated model says: readable and the same for the same prompt and seed.

An answer is planned whole before the first token: its ids, the text each id adds,
and why it ends. A file can fix the ids of chosen requests (`AnswerFile`).
"""

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Annotated

import msgspec

from kvindex.blocks import unpack_ids
from render import Renderer
from simworker import prose

NATURAL_SENTENCES = (3, 10)
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class BadAnswers(ValueError):
    """An answers file that cannot be used: one line, with the line number."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`pieces[i]` is the text that `token_ids[i]` adds; some add none."""

    token_ids: list[int]
    pieces: list[str]
    finish_reason: str
    stop_reason: str | int | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What ends an answer: at most `max_tokens`, or what the client named."""

    max_tokens: int
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False


class FixedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an answers file.

    It answers requests whose prompt ids are `prompt_ids`, or whose messages equal
    `messages`, or whose prompt or last message contains `match`. `output_ids` is
    what comes out, for every choice; it ends early only by the request's limits.
    `output_text` stands for its ids, and the one that ends an answer.
    """

    output_ids: list[TokenId] = []
    output_text: str | None = None
    prompt_ids: list[TokenId] | None = None
    messages: list[object] | None = None
    match: str | None = None

    @property
    def fits_any(self) -> bool:
        """Whether it says which requests it answers."""
        said = (self.prompt_ids, self.messages, self.match)
        return any(value is not None for value in said)

    def fits(self, prompt_ids: list[int], messages: object, text: str) -> bool:
        """Whether this line answers that request."""
        if self.prompt_ids is not None:
            return self.prompt_ids == prompt_ids
        if self.messages is not None:
            return self.messages == messages
        return self.match is not None and self.match in text


def read_answers(path: Path) -> tuple[FixedAnswer, ...]:
    """The lines of an answers file, JSON objects; the first that fits is taken.

    Raises BadAnswers for a file or a line that cannot be read.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise BadAnswers(f"cannot read {path}: {error.strerror}") from error
    answers = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            answer = msgspec.json.decode(line, type=FixedAnswer)
        except msgspec.DecodeError as error:
            raise BadAnswers(f"{path}, line {number}: {error}") from error
        if not answer.output_ids and not answer.output_text:
            raise BadAnswers(f"{path}, line {number}: output_ids is empty")
        if not answer.fits_any:
            raise BadAnswers(
                f"{path}, line {number}: neither match nor prompt_ids nor messages"
            )
        answers.append(answer)
    return tuple(answers)


class Author:
    """Writes the answers of one model. Called from worker threads."""

    def __init__(
        self, renderer: Renderer, *, fixed: Sequence[FixedAnswer] = ()
    ) -> None:
        self._renderer = renderer
        self._eos_id = self._end_of_text()
        self._fixed = fixed
        self._pieces: dict[int, str] = {}

    def write(
        self,
        prompt_ids: list[int],
        limits: Limits,
        *,
        messages: object = None,
        text: str = "",
        seed: int,
    ) -> Answer:
        """The answer to one choice: of a chat's `messages`, or whatever `text` asks."""
        for fixed in self._fixed:
            if fixed.fits(prompt_ids, messages, text):
                return self._end(self._fixed_ids(fixed), limits)
        return self._end(self._compose(prompt_ids, limits, seed), limits)

    @property
    def reads_text(self) -> bool:
        """Whether the text of a prompt of ids decides about its answer."""
        return any(fixed.match is not None for fixed in self._fixed)

    def _fixed_ids(self, fixed: FixedAnswer) -> list[int]:
        if fixed.output_text is None:
            return fixed.output_ids
        return self._ended(self._encode(fixed.output_text))

    def _compose(self, prompt_ids: list[int], limits: Limits, seed: int) -> list[int]:
        rng = Random(_seed_of(prompt_ids, seed))
        count = rng.randint(*NATURAL_SENTENCES)
        if limits.ignore_eos:
            # No sentence has fewer tokens than this many.
            count = max(count, limits.max_tokens // 4 + 1)
        return self._ended(self._encode(prose.paragraph(rng, count)))

    def _ended(self, token_ids: list[int]) -> list[int]:
        return token_ids if self._eos_id is None else [*token_ids, self._eos_id]

    def _encode(self, text: str) -> list[int]:
        body = {"prompt": text, "add_special_tokens": False}
        (rendered,) = self._renderer.render_completion(body)
        return unpack_ids(rendered.token_ids)

    def _end_of_text(self) -> int | None:
        """The id that ends an answer; None for a tokenizer that names none."""
        token = self._renderer.model.special_tokens.get("eos_token")
        token_ids = self._encode(token) if token else []
        return token_ids[0] if len(token_ids) == 1 else None

    def _end(self, token_ids: Sequence[int], limits: Limits) -> Answer:
        """Cut `token_ids` at the first of the limits."""
        kept, reason, stopped_by = list(token_ids[: limits.max_tokens]), "length", None
        if len(kept) == len(token_ids) < limits.max_tokens:
            reason = "stop"
        stop_ids = frozenset(limits.stop_token_ids)
        for position, token_id in enumerate(kept):
            eos = token_id == self._eos_id and not limits.ignore_eos
            if eos or token_id in stop_ids:
                kept, reason = kept[: position + 1], "stop"
                stopped_by = None if eos else token_id
                break
        pieces = self._texts(kept)
        if stopped_by is not None or (reason == "stop" and kept[-1] == self._eos_id):
            pieces[-1] = ""
        answer = Answer(
            token_ids=kept, pieces=pieces, finish_reason=reason, stop_reason=stopped_by
        )
        return _stopped(answer, limits) if limits.stop else answer

    def _texts(self, token_ids: list[int]) -> list[str]:
        pieces = [self.piece(token_id) for token_id in token_ids]
        if "\ufffd" not in "".join(pieces):
            whole = self._renderer.detokenize(token_ids)
            if "".join(pieces) == whole:
                return pieces
        return self._incremental(token_ids)

    def piece(self, token_id: int) -> str:
        """The text of one id on its own."""
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._renderer.detokenize([token_id])
        return piece

    def _incremental(self, token_ids: list[int]) -> list[str]:
        """What each id adds to the text so far, held back inside a character."""
        pieces: list[str] = []
        start, shown = 0, ""
        for end in range(1, len(token_ids) + 1):
            text = self._renderer.detokenize(token_ids[start:end])
            if text.endswith("\ufffd") and end < len(token_ids):
                pieces.append("")
                continue
            pieces.append(text[len(shown) :])
            # A window keeps this linear: what came before it cannot change any more.
            start = max(start, end - 8)
            shown = self._renderer.detokenize(token_ids[start:end])
        return pieces


def _stopped(answer: Answer, limits: Limits) -> Answer:
    """Cut `answer` where the first stop string has come out whole."""
    text, ends = "".join(answer.pieces), [*accumulate(map(len, answer.pieces))]
    first = None
    for stop in limits.stop:
        found = text.find(stop)
        if found < 0:
            continue
        position = bisect_left(ends, found + len(stop))
        if first is None or position < first[0]:
            first = position, found, stop
    if first is None:
        return answer
    position, found, stop = first
    keep = found + len(stop) * limits.include_stop
    return Answer(
        token_ids=answer.token_ids[: position + 1],
        pieces=_clipped(answer.pieces[: position + 1], keep),
        finish_reason="stop",
        stop_reason=stop,
    )


def _clipped(pieces: list[str], length: int) -> list[str]:
    clipped = []
    for piece in pieces:
        clipped.append(piece[: max(length, 0)])
        length -= len(piece)
    return clipped


def _seed_of(prompt_ids: list[int], seed: int) -> int:
    content = repr((seed, prompt_ids)).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())


def last_text(messages: object) -> str:
    """The text of the last message, which `match` is looked for in."""
    if isinstance(messages, list) and messages and isinstance(messages[-1], dict):
        return _flat(messages[-1].get("content"))
    return ""


def _flat(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (
            part.get("text") if isinstance(part, dict) else part for part in content
        )
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""
