"""Answers that had to be calls."""

import pytest

from render.parsers.events import Call, Event, Text
from render.parsers.forced import ForcedCalls

CALL = Call("tide", "{}")


def content(text: str) -> Text:
    """A piece of content."""
    return Text("content", text)


@pytest.mark.parametrize("name", [None, "tide"])
def test_what_stands_around_a_delimited_call_stays_there(name: str | None) -> None:
    """It is kept back no longer than to the call."""
    forced = ForcedCalls(name)
    thought = Text("reasoning", "so")
    assert forced.feed([thought, content("One ")]) == [thought]
    assert forced.feed([content("moment.")]) == []
    together: list[Event] = [content("One "), content("moment."), CALL]
    assert forced.feed([CALL, content("{}")]) == [*together, content("{}")]
    assert forced.feed([content(" Done.")]) == [content(" Done.")]
    assert forced.end() == []


def test_json_without_delimiters_is_known_at_the_end() -> None:
    """As calls, or as what it was."""
    required = ForcedCalls(None)
    said = content('[{"name": "tide", "arguments": {}}]')
    assert required.feed([said]) == []
    assert required.end() == [CALL]
    named = ForcedCalls("tide")
    assert named.feed([content("{"), content("}")]) == []
    assert named.end() == [CALL]
    text = ForcedCalls("tide")
    assert text.feed([content("[]")]) == []
    assert text.end() == [content("[]")]
