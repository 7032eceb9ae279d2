"""Chats of real prose, each text new: what a benchmark renders."""

import json
import random
import re
from collections.abc import Iterator
from pydoc_data.topics import topics

from tokenizers import Tokenizer

Messages = list[dict[str, str]]
CHARACTERS_PER_TOKEN = 4.3
"""Of this prose, about, with the tokenizers of today."""
TEMPLATE_TOKENS = 8
"""Around a single message, about."""


class Texts:
    """Prose in any amount: the sentences of Python's own help, in ever new order."""

    def __init__(self, seed: int) -> None:
        text = " ".join(topics[name] for name in sorted(topics))
        self._sentences = [s + " " for s in re.split(r"(?<=[.:])\s+", text)]
        self._random = random.Random(seed)

    def text(self, characters: int) -> str:
        """About so many characters, never the same twice."""
        pieces = [f"({self._random.getrandbits(32)}) "]
        size = 0
        while size < characters:
            pieces.append(self._random.choice(self._sentences))
            size += len(pieces[-1])
        return "".join(pieces)[: max(characters, 12)]

    def chat(self, tokens: int, messages: int) -> Messages:
        """A system message, then a user and an assistant in turn, the user last.

        `messages` is even; `tokens` are shared evenly, and met by about a tenth.
        """
        size = max(1, int(tokens * CHARACTERS_PER_TOKEN / messages) - 16)
        return [
            {"role": role, "content": self.text(size)}
            for role, _ in zip(_roles(), range(messages), strict=False)
        ]

    def question(self, tokenizer: Tokenizer, tokens: int) -> Messages:
        """One user's message; with what a template adds about so many tokens."""
        text = self.text(8 * tokens)
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        end = offsets[max(1, tokens - TEMPLATE_TOKENS)][0]
        return [{"role": "user", "content": text[:end]}]

    def turn(self) -> Messages:
        """What a follow-up turn adds: an answer and a question."""
        return [
            {"role": "assistant", "content": self.text(600)},
            {"role": "user", "content": self.text(200)},
        ]


def body(messages: Messages, **fields: object) -> bytes:
    """A chat completion body."""
    return json.dumps({"messages": messages, **fields}).encode()


def _roles() -> Iterator[str]:
    yield "system"
    while True:
        yield "user"
        yield "assistant"
