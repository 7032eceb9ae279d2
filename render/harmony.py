"""Prompts of gpt-oss, whose engines write them without a chat template.

They are turns in the harmony format. What engines make turns of is their profiles'
business; how turns are written is known here, and what a description of functions looks
like only to the library openai-harmony (`harmony_library.py`). The text is then encoded
as any other. In what a client wrote, special tokens are text: it is cut within them, so
that they are none, at a place where gpt-oss's tokenizer parts words anyway.
"""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import msgspec

from kvindex.blocks import unpack_ids
from render.body import ChatBody, Json
from render.encoder import Encoder
from render.errors import Reason, Unrenderable
from render.harmony_library import IDENTITY, HarmonyLibrary, HarmonyUnusable
from render.model import Model
from render.prompt import Prompt
from render.rules import AnswerRules
from render.selftest import TEXTS

MODEL_TYPE = "gpt_oss"
MARKS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>")
# A word ends at an ASCII letter before such a character, whatever is around the two.
WORD_END = re.compile(r"(?<=[A-Za-z])[^A-Za-z'\u0080-\U0010ffff]")
LONGEST_PROBE = 1000  # characters: the library is slow with long words
MAX_CUTS = 10_000  # in one prompt

log = logging.getLogger(__name__)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One message: its author (a role, or a function's name), header and texts.

    `texts` are encoded apart. `recipient_last` is whether the header names whom it is
    for after the channel; older ways to write it have that first. `is_call` is whether
    it ends as a call does.
    """

    author: str
    texts: tuple[str, ...]
    channel: str | None = None
    recipient: str | None = None
    recipient_last: bool = False
    content_type: str = ""
    is_call: bool = False


TurnsOf = Callable[[ChatBody, "Harmony"], list[Turn]]


class Harmony:
    """Writes prompts for one gpt-oss model; safe to use from several threads."""

    def __init__(self, encoder: Encoder, *, clock: Callable[[], float]) -> None:
        """`clock` is in epoch seconds: the prompt has the date. Takes a second.

        Raises HarmonyUnusable.
        """
        self._library = HarmonyLibrary(encoder.vocabulary())
        self._clock = clock
        tokens = sorted((t.content for t in encoder.added_tokens), key=len)
        self._tokens = re.compile("|".join(map(re.escape, reversed(tokens))))
        self._check(encoder)

    def system(
        self, *, effort: str, functions: bool, identity: str | None = None
    ) -> Turn:
        """The system message; `functions` is whether there are any to call."""
        date = datetime.fromtimestamp(self._clock()).strftime("%Y-%m-%d")
        text = self._library.system(effort, date, functions)
        if identity is not None:
            text = identity + text.removeprefix(IDENTITY)
        return Turn(author="system", texts=(text,))

    def developer(self, instructions: str | None, functions: Sequence[Json]) -> Turn:
        """The developer's instructions and functions; raises Unrenderable.

        A function has the keys name, description and parameters.
        """
        sections = []
        if instructions is not None:
            sections += ["# Instructions", instructions]
        if functions:
            described = "".join(map(self._library.function, functions))
            sections += [
                "# Tools",
                "## functions",
                f"namespace functions {{\n\n{described}}} // namespace functions",
            ]
        return Turn(author="developer", texts=("\n\n".join(sections),))

    def prompt(self, turns: Iterable[Turn]) -> Prompt:
        """The prompt for the assistant's next turn; raises Unrenderable."""
        writer = _Writer(self._tokens)
        for turn in turns:
            _write(writer, turn)
        writer.mark("<|start|>")
        writer.plain("assistant")
        if len(writer.cuts) > MAX_CUTS:
            words = f"special tokens written as text {len(writer.cuts)} times"
            raise Unrenderable("too_large", words)
        text = "".join(writer.parts)
        return Prompt(text=text, cuts=tuple(writer.cuts), uncut=True)

    def _check(self, encoder: Encoder) -> None:
        """Whether texts are encoded as the library does; raises HarmonyUnusable."""
        for text in (*TEXTS, *(f"x{text}<|end|> y<|start|>" for text in TEXTS)):
            if len(text) > LONGEST_PROBE:
                continue
            writer = _Writer(self._tokens)
            writer.plain(text)
            ids = b"".join(
                encoder.encode(piece, add_special_tokens=False)
                for piece in Prompt(text=text, cuts=tuple(writer.cuts)).pieces()
            )
            if unpack_ids(ids) != self._library.encode(text):
                raise HarmonyUnusable(f"openai-harmony encodes {text[:40]!r} otherwise")


def load_harmony(
    model: Model, encoder: Encoder, *, clock: Callable[[], float]
) -> Harmony | HarmonyUnusable | None:
    """For a gpt-oss model; None for another. Why it cannot be used is logged."""
    if model.model_type != MODEL_TYPE:
        return None
    try:
        return Harmony(encoder, clock=clock)
    except HarmonyUnusable as error:
        log.warning("chats of %s are not rendered: %s", model.name, error)
        return error


def harmony_prompt(
    harmony: Harmony | HarmonyUnusable, turns: TurnsOf | None, body: ChatBody
) -> Prompt:
    """The prompt of a chat; `turns` is what the engine makes of a body.

    Raises Unrenderable.
    """
    if isinstance(harmony, HarmonyUnusable):
        reason: Reason = "model_type" if harmony.installed else "missing_extra"
        raise Unrenderable(reason, harmony.message)
    if turns is None:
        raise Unrenderable("model_type", "rendered by openai-harmony")
    return harmony.prompt(turns(body, harmony))


def answer_rules(
    rules: AnswerRules, harmony: Harmony | HarmonyUnusable | None
) -> AnswerRules:
    """An engine's ways to answer a render request, if the model is gpt-oss."""
    if harmony is None or not rules.parses_harmony:
        return rules
    return msgspec.structs.replace(rules, tools_need_parser=False, always_parsed=True)


def written_marks(model: Model) -> str:
    """The special tokens that are written around turns, if it is such a model."""
    return "".join(MARKS) if model.model_type == MODEL_TYPE else ""


class _Writer:
    """A text and the places where it is cut before it is encoded."""

    def __init__(self, tokens: re.Pattern[str]) -> None:
        self.parts: list[str] = []
        self.cuts: list[int] = []
        self._tokens = tokens
        self._length = 0

    def mark(self, token: str) -> None:
        """Write a special token."""
        self.parts.append(token)
        self._length += len(token)

    def plain(self, text: str) -> None:
        """Write text in which special tokens are text; raises Unrenderable."""
        for match in self._tokens.finditer(text):
            end = WORD_END.search(match.group())
            if end is None:
                words = f"the text of the token {match.group()[:40]!r}"
                raise Unrenderable("bad_messages", words)
            self.cuts.append(self._length + match.start() + end.start())
        self.mark(text)

    def apart(self) -> None:
        """What follows is encoded apart from what is there."""
        self.cuts.append(self._length)


def _write(writer: _Writer, turn: Turn) -> None:
    recipient = f" to={turn.recipient}" if turn.recipient else ""
    first, last = ("", recipient) if turn.recipient_last else (recipient, "")
    writer.mark("<|start|>")
    writer.plain(turn.author + first)
    if turn.channel is not None:
        writer.mark("<|channel|>")
        writer.plain(turn.channel + last)
    constrained = turn.content_type.startswith("<|constrain|>")
    if turn.content_type:
        writer.apart()  # what is before it may end in a blank
        writer.plain(" ")
    if constrained:
        writer.mark("<|constrain|>")
    writer.plain(turn.content_type.removeprefix("<|constrain|>"))
    writer.mark("<|message|>")
    for index, text in enumerate(turn.texts):
        if index:
            writer.apart()
        writer.plain(text)
    writer.mark("<|call|>" if turn.is_call else "<|end|>")
