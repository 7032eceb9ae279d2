"""Chats of every shape, for comparing a worker's answers with ids and without."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

TOOLS: list[Json] = [
    {
        "type": "function",
        "function": {
            "name": "tide",
            "description": 'High or low: "now" & <later>.',
            "parameters": {
                "type": "object",
                "properties": {
                    "harbour": {"type": "string"},
                    "days": {"type": "integer"},
                },
            },
        },
    }
]
CALL: Json = {
    "id": "call_00001",
    "type": "function",
    "function": {"name": "tide", "arguments": '{"harbour": "Bergen", "days": 2}'},
}
NAMED: Json = {"type": "function", "function": {"name": "tide"}}


def user(text: object) -> Json:
    """What a user says."""
    return {"role": "user", "content": text}


def said(text: str | None, **more: object) -> Json:
    """What the assistant said."""
    return {"role": "assistant", "content": text, **more}


ASKED = user("When is it high tide?")
SYSTEM: Json = {"role": "system", "content": "You know the sea.\nBe brief.  "}
DEVELOPER: Json = {"role": "developer", "content": "Name no ships."}
BILLED: Json = {
    "role": "system",
    "content": "x-anthropic-billing-header: 7\nYou know the sea.",
}
TWO_PARTS = user([{"type": "text", "text": "When"}, {"type": "text", "text": "is it?"}])
TURN = (ASKED, said(None, tool_calls=[CALL]))
RESULT: Json = {"role": "tool", "tool_call_id": "call_00001", "content": "at noon"}
OPEN: Json = {"continue_final_message": True, "add_generation_prompt": False}


def _variables(**variables: object) -> Json:
    return {"chat_template_kwargs": variables}


def _ids(*ids: int) -> Json:
    return {"prompt_token_ids": list(ids)}


CHATS: Mapping[str, Json] = {
    "plain": {"messages": [ASKED]},
    "stream": {"messages": [ASKED], "stream": True},
    "unicode": {"messages": [user("héllo 你好 \U0001f600 \u2028 e\u0301")]},
    "control token": {"messages": [user("<|im_end|> <think> </think>")]},
    "three turns": {"messages": [ASKED, said("At noon."), user("Tomorrow?")]},
    "system": {"messages": [SYSTEM, ASKED]},
    "developer": {"messages": [DEVELOPER, ASKED]},
    "system, developer": {"messages": [SYSTEM, DEVELOPER, ASKED]},
    "late system": {"messages": [ASKED, said("At noon."), SYSTEM, ASKED]},
    "billing": {"messages": [BILLED, ASKED]},
    "parts": {"messages": [TWO_PARTS]},
    "name": {"messages": [{**ASKED, "name": "ann"}]},
    "empty": {"messages": [user("")]},
    "tools": {"messages": [ASKED], "tools": TOOLS},
    "tools, auto": {"messages": [ASKED], "tools": TOOLS, "tool_choice": "auto"},
    "tools, none": {"messages": [ASKED], "tools": TOOLS, "tool_choice": "none"},
    "tools, required": {"messages": [ASKED], "tools": TOOLS, "tool_choice": "required"},
    "tool turn": {"messages": [*TURN, RESULT], "tools": TOOLS},
    "reasoning": {"messages": [ASKED, said("Noon.", reasoning="Hm."), ASKED]},
    "thinking off": {"messages": [ASKED], **_variables(enable_thinking=False)},
    "thinking on": {"messages": [ASKED], **_variables(enable_thinking=True)},
    "effort none": {"messages": [ASKED], "reasoning_effort": "none"},
    "effort high": {"messages": [ASKED], "reasoning_effort": "high"},
    "documents": {"messages": [ASKED], "documents": [{"text": "Tides."}]},
    "continue": {"messages": [ASKED, said("It is")], **OPEN},
    "assistant last": {"messages": [ASKED, said("It is")]},
    "no generation": {"messages": [ASKED], "add_generation_prompt": False},
    "truncated": {"messages": [SYSTEM, ASKED], "truncate_prompt_tokens": 9},
    "special tokens": {"messages": [ASKED], "add_special_tokens": True},
    "json": {"messages": [ASKED], "response_format": {"type": "json_object"}},
    "logprobs": {"messages": [ASKED], "logprobs": True, "top_logprobs": 2},
    "transfer, empty": {"messages": [ASKED], "kv_transfer_params": {}},
    "transfer, null": {"messages": [ASKED], "kv_transfer_params": None},
    "long": {"messages": [user("The tide comes in. " * 600)]},
    "too long": {"messages": [user("The tide comes in. " * 6000)]},
    "named tool": {"messages": [ASKED], "tools": TOOLS, "tool_choice": NAMED},
    "echo": {"messages": [ASKED], "echo": True},
    "unknown field": {"messages": [ASKED], "mood": "calm"},
    "own ids": {"messages": [ASKED], "kv_transfer_params": _ids(9707, 11, 1879)},
}
"""The fields of each; the last four are bodies whose ids stay here."""
