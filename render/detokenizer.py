"""Token ids to text, a few at a time: linear, and the same text however they are cut.

A tokenizer's decoder works on all ids at once. Here each id has its piece, looked up
once: bytes that make UTF-8 together with their neighbours (byte-level tokenizers), or
text and single bytes (SentencePiece). The first bytes of a character wait for the rest.
What never becomes one is U+FFFD; what the answer ends in the middle of is left out, as
the engines do. A tokenizer with another decoder is decoded by its library.
"""

import codecs
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

SENTENCEPIECE = frozenset({"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"})
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
SEED_IDS = 7  # of a prompt, that say whether the answer goes on in the middle of a text
MOST_PENDING = 64  # ids the library may keep back before it is begun anew


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2)."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printed)]
    table = {chr(byte): byte for byte in printed}
    return table | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTES = _byte_alphabet()


class Pieces(dict[int, bytes]):
    """The bytes of each id, found when they are first asked for.

    An id that the vocabulary does not know has none.
    """

    def __init__(self, tokenizer: Tokenizer, decoder: Mapping[str, object]) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        steps = list(_steps(decoder))
        self.kind = _kind(steps)
        self.strips = any(
            step["type"] == "Strip"
            or (step["type"] == "Metaspace" and step.get("prepend_scheme") != "never")
            for step in steps
        )
        self._replaced = [
            pair for step in steps if (pair := _replacement(step)) is not None
        ]

    def __missing__(self, token_id: int) -> bytes:
        spelling = self._tokenizer.id_to_token(token_id)
        piece = b"" if spelling is None else self.of_spelling(spelling)
        self[token_id] = piece
        return piece

    def of_spelling(self, spelling: str) -> bytes:
        """The bytes of a token as the vocabulary spells it."""
        if self.kind == "bytes":
            known = [BYTES.get(character) for character in spelling]
            if None in known:
                return spelling.encode("utf-8", "replace")
            return bytes(byte for byte in known if byte is not None)
        byte = BYTE_TOKEN.fullmatch(spelling)
        if byte is not None and self.kind == "pieces":
            return bytes.fromhex(byte[1])
        for old, new in self._replaced:
            spelling = spelling.replace(old, new)
        return spelling.encode("utf-8", "replace")


class Detokenizer(Protocol):
    """One answer's ids to text."""

    def feed(self, token_ids: Iterable[int]) -> str:
        """The text that is certain with these ids; marks are in it as they are."""
        ...

    @property
    def pending(self) -> bool:
        """Whether the last character is not complete."""
        ...


class Vocabulary:
    """One tokenizer's ids as text. Detokenizers of it may run in several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        state = tokenizer.decoder.__getstate__() if tokenizer.decoder else b"{}"
        self.pieces = Pieces(tokenizer, json.loads(state))
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self.added_ids = {token.content: i for i, token in added.items()}

    def spelling(self, token_id: int) -> str:
        """The vocabulary's own spelling of an id; empty for one it does not know."""
        return self._tokenizer.id_to_token(token_id) or ""

    def detokenizer(
        self,
        *,
        marks: Mapping[int, str] | None = None,
        skip_special_tokens: bool = True,
        prompt_ids: Sequence[int] = (),
    ) -> Detokenizer:
        """For one answer. `marks` are what some ids become instead of their text.

        `prompt_ids` are the last ids of the prompt: after a text, the first token keeps
        its leading space.
        """
        skipped = self.special_ids if skip_special_tokens else frozenset[int]()
        seeds = prompt_ids[-SEED_IDS:]
        strips = self.pieces.strips and all(seed in skipped for seed in seeds)
        if self.pieces.kind == "library":
            return _ByLibrary(self._tokenizer, marks or {}, skipped)
        return _ByPieces(self.pieces, marks or {}, skipped, strips=strips)


class _ByPieces:
    """Joins pieces; what is pending are fewer bytes than the longest character has."""

    def __init__(
        self,
        pieces: Pieces,
        marks: Mapping[int, str],
        skipped: Collection[int],
        *,
        strips: bool,
    ) -> None:
        self._pieces = pieces
        self._marks = marks
        self._skipped = skipped
        self._strips = strips
        self._utf8 = codecs.getincrementaldecoder("utf-8")(
            "replace" if pieces.kind == "bytes" else "bytewise"
        )

    def feed(self, token_ids: Iterable[int]) -> str:
        """The text that is certain with these ids."""
        pieces, marks, skipped = self._pieces, self._marks, self._skipped
        texts: list[str] = []
        run: list[bytes] = []
        for token_id in token_ids:
            if token_id in marks:
                texts.append(self._utf8.decode(b"".join(run), True))
                texts.append(marks[token_id])
                self._utf8.reset()
                run = []
            elif token_id not in skipped:
                run.append(pieces[token_id])
        texts.append(self._utf8.decode(b"".join(run)))
        text = "".join(texts)
        if self._strips and text:
            self._strips = False
            return text.removeprefix(" ")
        return text

    @property
    def pending(self) -> bool:
        """Whether the last character is not complete."""
        return bool(self._utf8.getstate()[0])


class _ByLibrary:
    """Decodes as the tokenizer's library does; for decoders that are not known here."""

    def __init__(
        self, tokenizer: Tokenizer, marks: Mapping[int, str], skipped: Collection[int]
    ) -> None:
        self._tokenizer = tokenizer
        self._marks = marks
        self._skipped = skipped
        self._stream = DecodeStream(skip_special_tokens=False)
        self._waiting = 0

    def feed(self, token_ids: Iterable[int]) -> str:
        """The text that is certain with these ids."""
        return "".join(map(self._step, token_ids))

    def _step(self, token_id: int) -> str:
        if token_id in self._marks:
            self._begin_anew()
            return self._marks[token_id]
        if token_id in self._skipped:
            return ""
        text: str | None = self._stream.step(self._tokenizer, token_id)
        self._waiting = 0 if text is not None else self._waiting + 1
        if self._waiting > MOST_PENDING:
            self._begin_anew()
            return REPLACEMENT
        return text or ""

    def _begin_anew(self) -> None:
        self._stream = DecodeStream(skip_special_tokens=False)
        self._waiting = 0

    @property
    def pending(self) -> bool:
        """Whether the last character is not complete."""
        return self._waiting > 0


def _bytewise(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for each byte, as a SentencePiece decoder does it."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return REPLACEMENT * (error.end - error.start), error.end


codecs.register_error("bytewise", _bytewise)


def _steps(decoder: Mapping[str, object]) -> Iterable[Mapping[str, object]]:
    """The decoders of a sequence, one by one."""
    inner = decoder.get("decoders")
    if isinstance(inner, list):
        for one in inner:
            yield from _steps(one)
    elif "type" in decoder:
        yield decoder


def _kind(steps: Sequence[Mapping[str, object]]) -> str:
    kinds = {step["type"] for step in steps}
    if kinds == {"ByteLevel"}:
        return "bytes"
    known = kinds <= SENTENCEPIECE and all(
        step["type"] not in {"Replace", "Strip"}
        or _replacement(step) is not None
        or _strips_one_space(step)
        for step in steps
    )
    if not known or not kinds:
        return "library"
    return "pieces" if "ByteFallback" in kinds else "texts"


def _replacement(step: Mapping[str, object]) -> tuple[str, str] | None:
    """What a step writes instead of what; None if it is not a plain replacement."""
    if step["type"] == "Metaspace":
        return str(step.get("replacement", "\u2581")), " "
    pattern, content = step.get("pattern"), step.get("content")
    if isinstance(pattern, dict) and isinstance(content, str):
        old = pattern.get("String")
        return (old, content) if isinstance(old, str) and old else None
    return None


def _strips_one_space(step: Mapping[str, object]) -> bool:
    wanted = {"content": " ", "start": 1, "stop": 0}
    return step["type"] == "Strip" and wanted.items() <= step.items()
