"""Thirty requests of all kinds, for a real worker asked by chats and by token ids.

What is said is forced where it matters: the weights of a small model are noise.
"""

from typing import Any

FORCED = "forced"
"""A field that stands for those by which a worker says a text, and nothing else."""
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES = "/v1/responses"

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "enum": ["Kiel", "Oslo"]},
                "days": {"type": "integer", "enum": [1, 2]},
            },
            "required": ["place", "days"],
            "additionalProperties": False,
        },
    },
}
SAID = [
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "Which sea is that?"},
    {"role": "assistant", "content": "The Baltic."},
    {"role": "user", "content": "And how deep?"},
]
OFF: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
SCHEMA = {
    "type": "object",
    "properties": {"sea": {"type": "string", "enum": ["Baltic", "North"]}},
    "required": ["sea"],
    "additionalProperties": False,
}
THOUGHT = "I think.\n</think>\n\nIt is deep."
CALLED = (
    '<tool_call>\n{"name": "weather", "arguments": {"place": "Kiel"}}\n</tool_call>'
)


def _user(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def _forced(text: str) -> dict[str, Any]:
    return {FORCED: text, "max_tokens": 60}


CHATS: dict[str, dict[str, Any]] = {
    "plain": _user("Hello"),
    "conversation": {"messages": SAID},
    "reasoning": _user("Think of a number"),
    "no reasoning": {**_user("Say a number"), **OFF},
    "reasoning hidden": {**_user("Think"), "include_reasoning": False},
    "thought and said": {**_user("And?"), **_forced(THOUGHT)},
    "said at once": {**_user("And?"), **OFF, **_forced("It is deep.")},
    "unicode": _user("Grüße aus 東京 👩‍👩‍👧, café"),
    "unicode said": {**_user("x"), **OFF, **_forced("Größe 東京 👩‍👩‍👧 café")},
    "special text": _user("What is <|im_end|> and <think>?"),
    "several": {**_user("Pick"), "n": 3, "temperature": 0.01, "seed": 7},
    "one token": {**_user("One"), "max_tokens": 1},
    "sixteen tokens": {**_user("Sixteen"), "max_tokens": 16},
    "newer limit": {**_user("Seven"), "max_tokens": None, "max_completion_tokens": 7},
    "stop": {**_user("x"), **OFF, **_forced("one two three"), "stop": ["wo"]},
    "stop shown": {
        **_user("x"),
        **OFF,
        **_forced("one two three"),
        "stop": "two",
        "include_stop_str_in_output": True,
    },
    "stop id": {**_user("x"), "stop_token_ids": [43039], "max_tokens": 20},
    "logprobs": {**_user("Sure?"), "logprobs": True},
    "top logprobs": {**_user("Sure?"), "logprobs": True, "top_logprobs": 4},
    "ids": {**_user("Ids"), "return_token_ids": True},
    "ids and logprobs": {
        **_user("Ids"),
        "return_token_ids": True,
        "logprobs": True,
        "top_logprobs": 2,
    },
    "tools": {**_user("Weather in Kiel?"), "tools": [WEATHER]},
    "tools not used": {**_user("x"), "tools": [WEATHER], "tool_choice": "none"},
    "tool called": {**_user("x"), **OFF, "tools": [WEATHER], **_forced(CALLED)},
    "tool called twice": {
        **_user("x"),
        **OFF,
        "tools": [WEATHER],
        **_forced(f"Well.\n{CALLED}\n{CALLED}"),
    },
    "tool called once": {
        **_user("x"),
        **OFF,
        "tools": [WEATHER],
        "parallel_tool_calls": False,
        **_forced(f"{CALLED}\n{CALLED}"),
    },
    "no call": {**_user("x"), **OFF, "tools": [WEATHER], **_forced("It rains.")},
    "json": {
        **_user("Sea?"),
        **OFF,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "sea", "schema": SCHEMA},
        },
        "max_tokens": 30,
    },
    "no end": {**_user("On"), "ignore_eos": True, "max_tokens": 40},
    "penalties": {**_user("P"), "repetition_penalty": 1.3, "min_tokens": 5},
    "names of tokens": {
        **_user("T"),
        "logprobs": True,
        "top_logprobs": 1,
        "return_tokens_as_token_ids": True,
    },
}
TEXTS: dict[str, dict[str, Any]] = {
    "text": {"prompt": "The sea is"},
    "texts": {"prompt": ["The sea is", "The lake is"], "max_tokens": 5},
    "text from ids": {"prompt": [785, 9396, 374], "return_token_ids": True},
    "text logprobs": {"prompt": "The sea", "logprobs": 2},
    "text of likely tokens": {
        "prompt": "Sea", "logprobs": 1, "temperature": 1.5, "seed": 3, "n": 2
    },
    "text stop": {"prompt": "x", **_forced("one two three"), "stop": ["wo"]},
    "text echoed": {"prompt": "The sea is", "echo": True, "max_tokens": 4},
}  # fmt: skip
WEATHER_NOW = {"type": "function", **WEATHER["function"]}
OF_RESPONSES: dict[str, dict[str, Any]] = {
    "response": {"input": "Hello", **OFF},
    "response with reasoning": {"input": [{"role": "user", "content": "Think"}]},
    "response logprobs": {
        "input": "Sure?",
        **OFF,
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
    },
    "response instructed": {
        "input": [{"role": "user", "content": "x"}],
        "instructions": "Be brief.",
        "reasoning": {"effort": "none"},
        "metadata": {"a": "b"},
    },
    "response with tools": {"input": "x", **OFF, "tools": [WEATHER_NOW]},
}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (CHAT, fields) for name, fields in CHATS.items()},
    **{name: (COMPLETIONS, fields) for name, fields in TEXTS.items()},
    **{name: (RESPONSES, fields) for name, fields in OF_RESPONSES.items()},
}
"""Name -> where it goes, and the fields of its body."""
