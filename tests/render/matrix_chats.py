"""Chats of many forms, as a chat template may be handed them: the messages of a matrix.

Each is what `apply_chat_template` takes: messages, tools, documents, flags and further
variables. They are shown to templates as they are, with no engine's rules in between.
"""

from typing import Any

import msgspec

Json = dict[str, Any]


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """What a template is rendered with."""

    messages: list[Json]
    tools: list[Json] | None = None
    documents: list[Json] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    variables: Json = {}


SYSTEM: Json = {"role": "system", "content": "Be terse.\nAnswer in <b>French</b>."}
USER: Json = {"role": "user", "content": "What's 2 + 2, & why?"}
ANSWER: Json = {"role": "assistant", "content": "4, because it is."}
AGAIN: Json = {"role": "user", "content": "And 3 + 3?"}
WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'It\'s "the" <weather> now',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Zürich", "enum": ["é", "<"]},
                "days": {"type": ["integer", "null"], "default": 3, "minimum": 0.5},
                "units": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "where": {
                    "type": "object",
                    "properties": {"lat": {"type": "number"}},
                    "required": ["lat"],
                },
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city"],
        },
        "strict": True,
    },
}
# What vLLM makes of a tool without a description and parameters.
BARE: Json = {
    "type": "function",
    "function": {"name": "now", "description": None, "parameters": None},
}
TOOLS = [WEATHER, BARE]


def call(arguments: object, *, name: str = "get_weather", number: int = 1) -> Json:
    """A tool call of an assistant's message."""
    return {
        "id": f"call_{number}aaaaa"[:9],
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def result(content: object, *, name: str = "get_weather", number: int = 1) -> Json:
    """The message with a tool's answer."""
    return {
        "role": "tool",
        "tool_call_id": f"call_{number}aaaaa"[:9],
        "name": name,
        "content": content,
    }


ODD_ARGUMENTS: Json = {
    "whole": 3,
    "real": 1.0,
    "small": 1e-07,
    "large": 123456789012345678901,
    "yes": True,
    "nothing": None,
    "list": [1, "two", False, None, {"three": [3.5]}],
    "object": {"inner": {"deep": ["<&>'\"", {}]}},
    "empty": "",
    "text": 'two\nlines, "quoted" \\ é 世 🌍',
}


def _turn(arguments: object, answer: object, content: object = "") -> list[Json]:
    called = {"role": "assistant", "content": content, "tool_calls": [call(arguments)]}
    return [USER, called, result(answer)]


CITY = {"city": "Zürich"}
CHATS: dict[str, Chat] = {
    "plain": Chat(messages=[USER]),
    "no generation prompt": Chat(messages=[USER], add_generation_prompt=False),
    "system": Chat(messages=[SYSTEM, USER]),
    "turns": Chat(messages=[SYSTEM, USER, ANSWER, AGAIN]),
    "empty system, spaces": Chat(
        messages=[
            {"role": "system", "content": ""},
            {"role": "user", "content": "  spaces around \n\n"},
            {"role": "assistant", "content": "\n answer \n"},
            {"role": "user", "content": ""},
        ]
    ),
    "system later": Chat(messages=[USER, ANSWER, SYSTEM, AGAIN]),
    "developer": Chat(messages=[{**SYSTEM, "role": "developer"}, USER]),
    "unknown role": Chat(messages=[{"role": "alien", "content": "?"}, USER]),
    "assistant first": Chat(messages=[ANSWER, USER]),
    "users in a row": Chat(messages=[USER, AGAIN]),
    "unicode": Chat(
        messages=[
            {"role": "system", "content": "é e\u0301 \u07f3\u07fd ﬁ \u200b\u2028\x00"},
            {
                "role": "user",
                "content": "世界 🌍👩‍👩‍👧 مرحبا <|im_start|>user</s> {{ x }} {% y %}",
            },
        ]
    ),
    "names": Chat(messages=[{**USER, "name": "ann"}, {**ANSWER, "name": "bob"}, AGAIN]),
    "parts": Chat(
        messages=[
            {"role": "system", "content": [{"type": "text", "text": "Be terse."}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "first "},
                    {"type": "text", "text": "second", "cache_control": {"type": "e"}},
                ],
            },
        ]
    ),
    "an image": Chat(
        messages=[
            {
                "role": "user",
                "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}],
            }
        ]
    ),
    "no parts": Chat(messages=[{"role": "user", "content": []}]),
    "content null": Chat(
        messages=[USER, {"role": "assistant", "content": None}, AGAIN]
    ),
    "content absent": Chat(messages=[USER, {"role": "assistant"}, AGAIN]),
    "content a number": Chat(messages=[{"role": "user", "content": 17}]),
    "tools": Chat(messages=[SYSTEM, USER], tools=TOOLS),
    "tools, no system": Chat(messages=[USER], tools=[WEATHER]),
    "tools empty": Chat(messages=[USER], tools=[]),
    "tool turn": Chat(
        messages=[SYSTEM, *_turn(CITY, '{"t": 5}'), ANSWER, AGAIN], tools=TOOLS
    ),
    "tool turn, content null": Chat(messages=_turn(CITY, "5", None), tools=TOOLS),
    "tool turn, text too": Chat(messages=_turn(CITY, "5", "Let me see."), tools=TOOLS),
    "tool turn, tools gone": Chat(messages=_turn(CITY, "5")),
    "tool turn, arguments text": Chat(
        messages=_turn('{"city": "Zürich"}', "5"), tools=TOOLS
    ),
    "tool turn, no arguments": Chat(messages=_turn({}, "5"), tools=TOOLS),
    "tool turn, odd arguments": Chat(messages=_turn(ODD_ARGUMENTS, "5"), tools=TOOLS),
    "tool turn, answer in parts": Chat(
        messages=_turn(CITY, [{"type": "text", "text": "five"}]), tools=TOOLS
    ),
    "tool turn, answer an object": Chat(messages=_turn(CITY, {"t": 5}), tools=TOOLS),
    "tool calls in parallel": Chat(
        messages=[
            USER,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [call(CITY), call({}, name="now", number=2)],
            },
            result("5"),
            result("noon", name="now", number=2),
        ],
        tools=TOOLS,
    ),
    "tool calls null": Chat(messages=[USER, {**ANSWER, "tool_calls": None}, AGAIN]),
    "tool calls empty": Chat(messages=[USER, {**ANSWER, "tool_calls": []}, AGAIN]),
    "reasoning_content": Chat(
        messages=[USER, {**ANSWER, "reasoning_content": "easy\n"}, AGAIN]
    ),
    "reasoning": Chat(messages=[USER, {**ANSWER, "reasoning": "easy"}, AGAIN]),
    "reasoning twice": Chat(
        messages=[
            USER,
            {**ANSWER, "reasoning": "easy", "reasoning_content": "easy"},
            AGAIN,
        ]
    ),
    "thinking": Chat(messages=[USER, {**ANSWER, "thinking": "easy"}, AGAIN]),
    "reasoning in content": Chat(
        messages=[
            USER,
            {"role": "assistant", "content": "<think>\neasy\n</think>\n\n4"},
            AGAIN,
        ]
    ),
    "reasoning, tool turn": Chat(
        messages=[
            USER,
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "look it up",
                "tool_calls": [call(CITY)],
            },
            result("5"),
        ],
        tools=TOOLS,
    ),
    "answer last": Chat(messages=[USER, ANSWER], add_generation_prompt=False),
    "answer last, prompt": Chat(messages=[USER, ANSWER]),
    "continue": Chat(
        messages=[USER, {"role": "assistant", "content": "One, two "}],
        add_generation_prompt=False,
        continue_final_message=True,
    ),
    "continue, spaces": Chat(
        messages=[USER, {"role": "assistant", "content": "  One \n\n"}],
        add_generation_prompt=False,
        continue_final_message=True,
    ),
    "continue, empty": Chat(
        messages=[USER, {"role": "assistant", "content": ""}],
        add_generation_prompt=False,
        continue_final_message=True,
    ),
    "continue, thinking": Chat(
        messages=[
            USER,
            {"role": "assistant", "content": "<think>\nhm\n</think>\n\nFo"},
        ],
        add_generation_prompt=False,
        continue_final_message=True,
    ),
    "continue, parts": Chat(
        messages=[
            USER,
            {"role": "assistant", "content": [{"type": "text", "text": "One, "}]},
        ],
        add_generation_prompt=False,
        continue_final_message=True,
    ),
    "continue, user": Chat(
        messages=[USER], add_generation_prompt=False, continue_final_message=True
    ),
    "documents": Chat(
        messages=[USER],
        documents=[{"title": "A & B", "text": "x"}, {"title": "C", "text": "é"}],
    ),
    "thinking off": Chat(
        messages=[SYSTEM, USER], variables={"enable_thinking": False, "thinking": False}
    ),
    "thinking on": Chat(
        messages=[USER, ANSWER, AGAIN],
        variables={"enable_thinking": True, "reasoning_effort": "high"},
    ),
    "own tokens": Chat(
        messages=[USER], variables={"bos_token": "<other>", "custom": {"a": [1]}}
    ),
}
