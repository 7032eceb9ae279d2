"""A prompt before it is encoded, and after."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from kvindex.blocks import pack_ids
from render.body import Truncation
from render.errors import Unrenderable


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt as token ids.

    `token_ids` are unsigned 32-bit little-endian; `text` is what was encoded, None if
    the ids were given. `template_s` and `tokenize_s` are the seconds taken.
    """

    token_ids: bytes
    profile: str
    text: str | None = None
    template_s: float = 0.0
    tokenize_s: float = 0.0

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self.token_ids) // 4


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt before it is encoded: a text, or ids that were given (as in Rendered).

    `special` is whether the tokenizer adds its special tokens around the text;
    `appended` is text that follows it and is encoded apart. `cuts` are further places
    in the text, ascending, where it is cut before it is encoded. `uncut` is whether no
    request can have it truncated.
    """

    text: str | None = None
    given: bytes | None = None
    special: bool = False
    cut: Truncation | None = None
    appended: str = ""
    template_s: float = 0.0
    cuts: tuple[int, ...] = ()
    uncut: bool = False

    def pieces(self) -> list[str]:
        """The parts of the text that are encoded apart."""
        text = self.text or ""
        bounds = [0, *self.cuts, len(text)]
        return [text[start:end] for start, end in pairwise(bounds)]

    @property
    def whole_text(self) -> str | None:
        """All of the text; None if ids were given."""
        return None if self.text is None else self.text + self.appended


def packed(ids: Sequence[object]) -> bytes:
    """Ids a body gives, as bytes; raises Unrenderable("bad_prompt")."""
    # A boolean would be packed as 0 or 1; no engine takes one.
    if not all(type(token_id) is int for token_id in ids):
        raise Unrenderable("bad_prompt", "token ids are integers")
    try:
        return pack_ids(ids)  # type: ignore[arg-type]  # checked above
    except ValueError as error:
        raise Unrenderable("bad_prompt", str(error)) from error


def truncated(ids: bytes, cut: Truncation | None, added: int) -> bytes:
    """What is left of ids; room is made for `added` ids that come around them."""
    if cut is None:
        return ids
    kept = 4 * max(cut.tokens - added, 0)
    if kept >= len(ids):
        return ids
    return ids[:kept] if cut.keep_first else ids[len(ids) - kept :]
