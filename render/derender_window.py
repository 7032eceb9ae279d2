"""The window of tokens that vLLM's streaming derender carries from chunk to chunk."""

import codecs
from collections.abc import Sequence

import msgspec

from render.detokenizer import MOST_PENDING, SEED_IDS, Vocabulary


class Window(msgspec.Struct, frozen=True):
    """The last tokens as they are spelled; those from `read` on have no text yet."""

    tokens: list[str]
    read: int


def seeded(
    vocabulary: Vocabulary, prompt_ids: Sequence[int], *, skip_special_tokens: bool
) -> Window:
    """The window after a prompt: its last token that is a part of the text."""
    skipped = vocabulary.special_ids if skip_special_tokens else frozenset[int]()
    shown = [one for one in prompt_ids[-SEED_IDS:] if one not in skipped]
    tokens = [vocabulary.spelling(one) for one in shown[-1:]]
    return Window(tokens, len(tokens))


def moved(
    vocabulary: Vocabulary,
    window: Window,
    token_ids: Sequence[int],
    *,
    skip_special_tokens: bool,
) -> tuple[str, Window]:
    """The text that is certain with these ids, and the window after them.

    A token counts as read when all of its characters are whole.
    """
    skipped = vocabulary.special_ids if skip_special_tokens else frozenset[int]()
    pieces = vocabulary.pieces
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    read = window.tokens[: window.read][-1:]
    strips = pieces.strips and not read
    waiting: list[str] = []
    certain, text = "", ""
    spelled = [
        *window.tokens[window.read :],
        *(vocabulary.spelling(one) for one in token_ids if one not in skipped),
    ]
    for token in spelled:
        text += utf8.decode(pieces.of_spelling(token))
        waiting.append(token)
        if utf8.getstate()[0] and len(waiting) <= MOST_PENDING:
            continue
        certain, text = certain + text, ""
        read, waiting = [token], []
    if strips:
        certain = certain.removeprefix(" ")
    return certain, Window([*read, *waiting], len(read))
