"""What comes out of a parser: pieces of text, and whole calls."""

from typing import Literal

import msgspec


class Text(msgspec.Struct, frozen=True):
    """A piece of the answer's text. Pieces of one kind are joined by the reader."""

    kind: Literal["reasoning", "content"]
    text: str


class Call(msgspec.Struct, frozen=True):
    """A whole tool call; `arguments` is the JSON text of an object."""

    name: str
    arguments: str


Event = Text | Call
