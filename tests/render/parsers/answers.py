"""Answers for the tests of parsers: texts of any tokenizer, parsed in any pieces."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from render.derender import joined
from render.detokenizer import Vocabulary
from render.parsers.answer import AnswerParser
from render.parsers.events import Call, Text
from render.parsers.formats import Format, find_format
from render.parsers.marks import Marks
from render.parsers.values import Tools
from tests.render.models import byte_level

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "exact": {"type": "boolean"},
                "where": {"type": "object"},
            },
        },
    },
}


class Parsed(msgspec.Struct, frozen=True):
    """What a parser made of an answer."""

    reasoning: str
    content: str
    calls: list[tuple[str, str]]


@lru_cache(maxsize=64)
def vocabulary_of(format: Format) -> Vocabulary:
    """A byte-level tokenizer whose added tokens are a format's delimiters."""
    return Vocabulary(byte_level(specials=[*dict.fromkeys(format.delimiters)]))


def format_of(reasoning: str | None, tools: str | None) -> Format:
    """The format of two parsers, one of which there is."""
    format = find_format(reasoning, tools)
    assert format is not None
    return format


def parse(
    format: Format,
    pieces: Sequence[str],
    *,
    prompt: str | None = None,
    tools: object = (WEATHER,),
    variables: Mapping[str, object] | None = None,
    tokens: bool = True,
    calls: bool = True,
    letters: bool = False,
) -> Parsed:
    """An answer that comes in pieces; with `tokens`, its delimiters are tokens.

    With `letters`, they are tokens of the tokenizer, but not in this answer.
    """
    vocabulary = vocabulary_of(format) if tokens else Vocabulary(byte_level())
    marks = Marks(format.delimiters, vocabulary.added_ids)
    parser = AnswerParser(
        format,
        marks,
        tools=Tools(tools),
        calls=calls,
        prompt=None if prompt is None else marked(marks, prompt),
        variables=variables or {},
    )
    events = [
        event
        for piece in pieces
        for event in parser.feed(
            marked(marks, piece) if tokens and not letters else piece
        )
    ]
    events = joined([*events, *parser.end()])
    texts = {"reasoning": "", "content": ""}
    for event in events:
        if isinstance(event, Text):
            texts[event.kind] += event.text
    found = [(one.name, one.arguments) for one in events if isinstance(one, Call)]
    return Parsed(texts["reasoning"], texts["content"], found)


def marked(marks: Marks, text: str) -> str:
    """A text in which every delimiter of a format is its mark."""
    by_length = sorted(marks.texts.items(), key=lambda item: -len(item[1]))
    for mark, delimiter in by_length:
        text = text.replace(delimiter, mark)
    return text


def cut(text: str, size: int) -> list[str]:
    """A text in pieces of one length."""
    return [text[place : place + size] for place in range(0, len(text), size)]
