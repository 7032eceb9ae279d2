"""What vLLM makes of messages and tools, point by point."""

import json
from typing import Any

import pytest

from tests.render.profiles.conversations import parts, prepared, shown


@pytest.mark.parametrize(
    ("content", "as_string", "as_parts"),
    [
        ("hi", "hi", parts("hi")),
        ("", "", parts("")),
        (None, "", []),
        ([], "", []),
        (parts("a", "b"), "a\nb", parts("a", "b")),
        (parts("a", "", "b"), "a\nb", parts("a", "", "b")),
        (parts("a", None), "a", parts("a")),
        (["a", "b"], "a\nb", parts("a", "b")),
        (
            [
                {"type": "input_text", "text": "a"},
                {"type": "output_text", "text": "b", "annotations": []},
                {"type": "refusal", "refusal": "c"},
                {"type": "thinking", "thinking": "d", "closed": True},
            ],
            "a\nb\nc\nd",
            [
                {"type": "text", "text": "a"},
                {"type": "text", "text": "b", "annotations": []},
                {"type": "text", "text": "c"},
                {"type": "text", "text": "d"},
            ],
        ),
        (
            [{"type": "text", "cache_control": {"ttl": 1}, "text": "a"}],
            "a",
            [{"type": "text", "text": "a", "cache_control": {"ttl": 1}}],
        ),
    ],
)
def test_content(content: Any, as_string: str, as_parts: list[Any]) -> None:
    """Parts are joined by lines, or kept with the fields nobody knows."""
    message = {"role": "user", "content": content}
    assert json.loads(shown(message))["content"] == as_string
    listed = json.loads(shown(message, "openai"))["content"]
    assert json.dumps(listed) == json.dumps(as_parts)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            {"content": "x", "role": "user", "name": "bob", "odd": 1},
            {"role": "user", "content": "x", "name": "bob"},
        ),
        (
            {"role": "user", "content": "x", "name": 5, "task": "t"},
            {"role": "user", "content": "x", "task": "t"},
        ),
        (
            {"role": "tool", "content": parts("a", "b"), "tool_call_id": "1"},
            {"role": "tool", "content": "a\nb", "tool_call_id": "1"},
        ),
        ({"role": "tool", "content": "a"}, {"role": "tool", "content": "a"}),
        ({"role": "alien"}, {"role": "alien", "content": ""}),
        (
            {"role": "assistant", "reasoning_content": "why", "content": "x"},
            {
                "role": "assistant",
                "content": "x",
                "reasoning": "why",
                "reasoning_content": "why",
            },
        ),
        (
            {"role": "assistant", "reasoning": "a", "reasoning_content": "b"},
            {
                "role": "assistant",
                "content": "",
                "reasoning": "a",
                "reasoning_content": "a",
            },
        ),
        (
            {"role": "user", "content": "x", "reasoning": "a"},
            {"role": "user", "content": "x"},
        ),
        (
            {"role": "assistant", "content": "x", "tool_calls": []},
            {"role": "assistant", "content": "x"},
        ),
        (
            {"role": "assistant", "content": "x", "tool_calls": None},
            {"role": "assistant", "content": "x"},
        ),
        (
            {"role": "user", "content": "x", "tool_calls": [{"function": {}}]},
            {"role": "user", "content": "x"},
        ),
        (
            {"role": "developer", "content": "x"},
            {"role": "system", "content": "x"},
        ),
    ],
)
def test_fields_of_messages(message: dict[str, Any], expected: dict[str, Any]) -> None:
    """Which fields each role keeps, in which order."""
    assert shown(message) == json.dumps(expected)


def test_tool_answers_in_parts() -> None:
    """A tool's text parts are a string for every template; references stay parts."""
    message = {"role": "tool", "content": parts("a", "b"), "tool_call_id": None}
    assert json.loads(shown(message, "openai"))["content"] == "a\nb"
    reference = {"type": "tool_reference", "name": "f"}
    message["content"] = [*parts("a"), reference]
    assert json.loads(shown(message, "openai"))["content"] == [*parts("a"), reference]
    assert json.loads(shown(message))["content"] == "a\nf"


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ('{"a": 1.0, "b": null}', {"a": 1.0, "b": None}),
        ('{"b": 1, "a": 123456789012345678901}', {"b": 1, "a": 123456789012345678901}),
        ('{"a": {"b": "é"}}', {"a": {"b": "é"}}),
        ("", {}),
        (None, {}),
        ("{not json", {}),
        ("[1]", {}),
        ("42", {}),
        ('"text"', {}),
        ("[" * 100_000, {}),
        ("9" * 5000, {}),
        ({"a": 1}, {"a": 1}),
        ([1], {}),
        (7, {}),
    ],
)
def test_tool_call_arguments(arguments: Any, parsed: dict[str, Any]) -> None:
    """Arguments become an object, an empty one if they are none."""
    call = {
        "type": "function",
        "index": 0,
        "function": {"name": "f", "arguments": arguments, "x": 1},
        "id": "1",
    }
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    function = {"arguments": parsed, "name": "f", "x": 1}
    assert shown(message) == json.dumps(
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "1", "function": function, "type": "function", "index": 0}
            ],
        },
        ensure_ascii=False,
    )


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (
            {"function": {"name": "f"}},
            {
                "type": "function",
                "function": {"name": "f", "description": None, "parameters": None},
            },
        ),
        (
            {
                "function": {
                    "strict": True,
                    "parameters": {"b": 1, "a": {"$ref": "x"}},
                    "odd": 1,
                    "description": "d",
                    "name": "f",
                },
                "odd": 1,
                "type": "function",
            },
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": "d",
                    "parameters": {"b": 1, "a": {"$ref": "x"}},
                    "strict": True,
                },
            },
        ),
        (
            {"function": {"name": "f", "strict": None}, "defer_loading": True},
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": None,
                    "parameters": None,
                    "defer_loading": True,
                },
                "defer_loading": True,
            },
        ),
    ],
)
def test_tools(tool: dict[str, Any], expected: dict[str, Any]) -> None:
    """Tools are written anew: known keys in their order, absent ones as null."""
    conversation = prepared(tools=[tool])
    assert json.dumps(conversation.tools) == json.dumps([expected])


def test_no_tools() -> None:
    """Absent tools are None; an empty list is a list."""
    assert prepared().tools is None
    assert prepared(tools=None).tools is None
    assert prepared(tools=[]).tools == []
