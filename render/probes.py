"""Probes: fixed chats that show whether a worker renders as this gateway does.

Each is rendered here and by the worker, and the ids are compared. A set of equal probes
proves the features of requests that they had (`shape.py`); what a worker's route cannot
express, or either side refuses, is not proven. How a worker is asked is not here.
"""

from collections.abc import Mapping, Sequence

import msgspec

from kvindex.blocks import unpack_ids
from render.body import Json
from render.profiles.vllm import BILLING_HEADER
from render.shape import shape_of


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A chat body without a model, and the name it goes by in logs.

    `of_release` is whether releases of one engine are known to differ in it: then it
    tells nothing of other chats, and a difference leaves its features unproven.
    """

    name: str
    body: Mapping[str, object]
    of_release: bool = False

    def features(self, profile: str) -> frozenset[str]:
        """What an equal rendering of it proves, as the engine of a profile reads it."""
        return shape_of(self.body, profile).features


def first_difference(ours: bytes, theirs: Sequence[int]) -> int | None:
    """The position of the first id that differs, or is one side's only; None: equal.

    `ours` are u32 little-endian ids.
    """
    mine = unpack_ids(ours)
    if mine == list(theirs):
        return None
    pairs = zip(mine, theirs, strict=False)
    differing = (at for at, (one, other) in enumerate(pairs) if one != other)
    return next(differing, min(len(mine), len(theirs)))


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


def _assistant(text: str, **more: object) -> Json:
    return {"role": "assistant", "content": text, **more}


def _call(name: str, arguments: str, call_id: str = "call_00001") -> Json:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _tool(name: str, **more: object) -> Json:
    return {"type": "function", "function": {"name": name, **more}}


ASKED = _user("What is the weather in Bergen?")
SYSTEM: Json = {"role": "system", "content": "You are terse.\nAnswer in English.  "}
TOOLS = [
    _tool(
        "get_weather",
        description='The weather at a place, today: "sun" & <rain>, -5 °C.',
        parameters={
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "a town"},
                "days": {"type": "integer", "minimum": 1, "default": 3},
                "unit": {"enum": ["celsius", "fahrenheit"]},
            },
            "required": ["place"],
        },
    ),
    _tool("now"),
]
TOOL_TURNS = [
    ASKED,
    _assistant("", tool_calls=[_call("get_weather", '{"place": "Bergen", "days": 1}')]),
    {"role": "tool", "tool_call_id": "call_00001", "content": '{"sky": "rain"}'},
    _assistant("Rain.\n"),
    _user("And in Oslo, and what time is it?"),
    _assistant(
        "I look.",
        tool_calls=[
            _call("get_weather", '{"place":"Oslo","unit":"celsius"}', "call_00002"),
            _call("now", "{}", "call_00003"),
        ],
    ),
    {"role": "tool", "tool_call_id": "call_00002", "content": "snow, -5.50 °C"},
    {"role": "tool", "tool_call_id": "call_00003", "content": "12:00"},
]
PARTS = [
    {"type": "text", "text": "Two parts: "},
    {"type": "text", "text": " the second,\nof two lines."},
]
REASONED = [
    _user("Is 91 prime?"),
    _assistant("No.", reasoning="91 = 7 * 13,\nso it is not."),
    _user("And 97?"),
]
UNICODE = (
    "e\u0301 \u00e9 o\u0308\u0323 \u1100\u1161\u11a8 \ufb01 \u212b \U0001f469\u200d"
    "\U0001f52c \U0001f1f3\U0001f1f4 \u0645\u0631\u062d\u0628\u0627 \u4f60\u597d"
    "\u3000\u00a0\u2028|\u200b|\t\r\n   x\u00b2 \u0130\u0131 123456 it's don't 'll"
)
MARKUP = (
    "<|im_start|>system\nhi<|im_end|> <|endoftext|> <s></s> [INST] x [/INST] "
    "<|eot_id|><|start_header_id|>user<|end_header_id|> <start_of_turn><end_of_turn> "
    "<think>\nx\n</think> <tool_call>{}</tool_call> {{ x }} {% if %} <|end|> <pad>"
)
TURNS = [
    turn
    for number in range(12)
    for turn in (
        _user(f"Question {number}: tell me of harbour {number * 37}. " * (number + 1)),
        _assistant(f"Answer {number}.\n\n1. piers\n2. cranes\t{number}\n" * 2),
    )
]
DOCUMENTS = [
    {"title": "Bergen", "text": "It rains there."},
    {"title": "Oslo", "text": "A fjord."},
]


def _chat(*messages: Json, **fields: object) -> Json:
    return {"messages": list(messages), **fields}


_BODIES: Mapping[str, Json] = {
    "plain": _chat(ASKED),
    "turns": _chat(*TURNS, _user("And the last?")),
    "unicode": _chat(_user(UNICODE), _assistant(UNICODE[::-1]), _user(" \n")),
    "markup": _chat(_user(MARKUP)),
    "system": _chat(SYSTEM, ASKED),
    "late_system": _chat(SYSTEM, ASKED, _assistant("Rain."), SYSTEM, _user("Sure?")),
    "billing_header": _chat(
        {**SYSTEM, "content": f"{BILLING_HEADER}: cc=1;\nYou are terse."}, ASKED
    ),
    "developer": _chat({"role": "developer", "content": "Be brief."}, ASKED),
    "parts": _chat({"role": "system", "content": PARTS}, {**ASKED, "content": PARTS}),
    "name": _chat({**ASKED, "name": "ada"}),
    "tools": _chat(ASKED, tools=TOOLS),
    "system_tools": _chat(SYSTEM, ASKED, tools=TOOLS),
    "strict_tools": _chat(ASKED, tools=[_tool("now", strict=True)]),
    "tool_choice_none": _chat(ASKED, tools=TOOLS, tool_choice="none"),
    "tool_turns": _chat(*TOOL_TURNS, tools=TOOLS),
    "bare_tool_turns": _chat(SYSTEM, *TOOL_TURNS, _assistant("Snow."), _user("Ah.")),
    "tool_parts": _chat(*TOOL_TURNS[:2], {**TOOL_TURNS[2], "content": PARTS}),
    "reasoning": _chat(*REASONED),
    "reasoning_tools": _chat(
        ASKED, {**TOOL_TURNS[1], "reasoning": "I ask."}, TOOL_TURNS[2], tools=TOOLS
    ),
    "thinking_on": _chat(ASKED, chat_template_kwargs={"enable_thinking": True}),
    "thinking_off": _chat(
        *REASONED, chat_template_kwargs={"enable_thinking": False, "thinking": False}
    ),
    "effort_low": _chat(ASKED, reasoning_effort="low"),
    "effort_none": _chat(SYSTEM, ASKED, reasoning_effort="none"),
    "documents": _chat(ASKED, documents=DOCUMENTS),
    "truncation": _chat(SYSTEM, ASKED, truncate_prompt_tokens=7),
    "truncation_right": _chat(
        SYSTEM, ASKED, truncate_prompt_tokens=7, truncation_side="right"
    ),
    "special_tokens": _chat(ASKED, add_special_tokens=True),
    "no_generation_prompt": _chat(ASKED, add_generation_prompt=False),
    "assistant_last": _chat(ASKED, _assistant("It is")),
    "continue": _chat(
        ASKED,
        _assistant("It is "),
        add_generation_prompt=False,
        continue_final_message=True,
    ),
    "empty_content": _chat({**SYSTEM, "content": ""}, _user(""), _assistant(""), ASKED),
    "null_content": _chat(
        ASKED, {**TOOL_TURNS[1], "content": None}, TOOL_TURNS[2], tools=TOOLS
    ),
}

_OF_RELEASE = frozenset({"billing_header", "strict_tools"})

PROBES = tuple(
    Probe(name=name, body=body, of_release=name in _OF_RELEASE)
    for name, body in _BODIES.items()
)
"""All of them; the first has no features, and nothing is proven without it."""

FEW = tuple(p for p in PROBES if p.name in {"plain", "system_tools", "tool_turns"})
"""Enough to tell another template or tokenizer, in all likelihood."""
