"""The shape of a chat body: which rules of an engine its rendering needs.

A worker is proven to render alike for the features that were compared; a request
whose features were not all compared keeps its messages only. Some bodies are never sent
ids, whatever was compared: `never` is the reason. What a body says is not judged here,
and nothing is rendered; a shape is of one engine's reading, its profile's.
"""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from render import shape_fields as known
from render.body import Json, flag
from render.errors import Unrenderable
from render.messages import is_media
from render.profiles.vllm import BILLING_HEADER

Feature = Literal[
    "system",
    "late_system",  # a system's or developer's message that is not the first
    "developer",
    "billing_header",  # a system's text begins with a line that newer engines drop
    "tools",
    "strict_tools",  # a tool says whether it is strict
    "tool_choice_none",  # there are tools, and none may be called
    "tool_turns",  # calls of tools and their answers
    "parts",  # content in parts
    "tool_parts",  # of a tool's answer
    "name",
    "reasoning",  # of an earlier turn
    "template_kwargs",
    "reasoning_effort",
    "documents",
    "truncation",
    "special_tokens",  # the tokenizer adds its own
    "continue",
    "no_generation_prompt",
    "assistant_last",  # and not to be continued
    "empty_content",
]
FEATURES: frozenset[str] = frozenset(get_args(Feature))

Never = Literal[
    "named_tool_choice",  # TensorRT-LLM refuses it with ids
    "echo",  # vLLM renders all the same
    "media",
    "unknown_field",  # or a value of one that is not as the API describes it
    "own_ids",  # the client brings its own
    "request_template",
    "truncation",  # to what fits the model, which the worker knows
    "usage",  # the model's usage leaves out tokens that were rendered, not those given
]
NEVER: tuple[Never, ...] = get_args(Never)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The features of a body, and why it is never sent ids (None: it may be)."""

    features: frozenset[str] = frozenset()
    never: Never | None = None


class _NeverSent(Exception):
    def __init__(self, reason: Never) -> None:
        super().__init__(reason)
        self.reason: Never = reason


def never_for(model_type: str | None) -> Never | None:
    """Why no request to models of that type is sent ids, if so."""
    return "usage" if model_type in known.USAGE_LEAVES_OUT else None


def shape_of(body: Mapping[str, object], profile: str = "vllm") -> Shape:
    """The shape of a chat body as the engine of that profile reads it.

    A plain chat of users and assistants in texts has no features.
    """
    features: set[Feature] = set()
    try:
        _top_level(body, profile, features)
        _messages(body, features)
        _tools(body, features)
    except _NeverSent as never:
        return Shape(features=frozenset(features), never=never.reason)
    return Shape(features=frozenset(features))


def _top_level(
    body: Mapping[str, object], profile: str, features: set[Feature]
) -> None:
    for name, value in body.items():
        if value is None or name in known.UNSEEN:
            continue
        if name in known.OWN_IDS:
            raise _NeverSent("own_ids")
        if name not in known.READ:
            raise _NeverSent("unknown_field")
    if body.get("chat_template") is not None:
        raise _NeverSent("request_template")
    if _flag(body, "echo", default=False):
        raise _NeverSent("echo")
    if body.get("media_io_kwargs") or body.get("mm_processor_kwargs"):
        raise _NeverSent("media")
    _transfer(body.get("kv_transfer_params"))
    _variables(body, profile, features)
    _tokenizing(body, features)


def _transfer(params: object) -> None:
    if params is None:
        return
    if not isinstance(params, dict):
        raise _NeverSent("unknown_field")
    if params.get("prompt_token_ids") is not None:
        raise _NeverSent("own_ids")


def _variables(
    body: Mapping[str, object], profile: str, features: set[Feature]
) -> None:
    kwargs = body.get("chat_template_kwargs")
    if kwargs:
        if not isinstance(kwargs, dict) or not known.ARGUMENTS.isdisjoint(kwargs):
            raise _NeverSent("unknown_field")
        features.add("template_kwargs")
    if body.get("reasoning_effort") is not None:
        features.add("reasoning_effort")
    if body.get("reasoning") is not None:
        if profile != "sglang":  # a field of its chats only
            raise _NeverSent("unknown_field")
        features.add("reasoning_effort")
    if body.get("documents") is not None:
        features.add("documents")


def _tokenizing(body: Mapping[str, object], features: set[Feature]) -> None:
    if _flag(body, "add_special_tokens", default=False):
        features.add("special_tokens")
    if not _flag(body, "add_generation_prompt", default=True):
        features.add("no_generation_prompt")
    if _flag(body, "continue_final_message", default=False):
        features.add("continue")
    tokens = body.get("truncate_prompt_tokens")
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        raise _NeverSent("truncation")
    if tokens is not None or body.get("truncation_side") is not None:
        features.add("truncation")


def _flag(body: Mapping[str, object], name: str, *, default: bool) -> bool:
    try:
        return flag(body.get(name), name, default=default)
    except Unrenderable:
        raise _NeverSent("unknown_field") from None


def _messages(body: Mapping[str, object], features: set[Feature]) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _NeverSent("unknown_field")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise _NeverSent("unknown_field")
        _message(message, index, features)
    if messages[-1]["role"] == "assistant" and "continue" not in features:
        features.add("assistant_last")


def _message(message: Json, index: int, features: set[Feature]) -> None:
    role = message.get("role")
    if role == "assistant":
        _assistant(message, features)
    elif role == "tool":
        features.add("tool_turns")
        _check_set(message, known.MESSAGE | known.TOOL)
    elif role in ("system", "developer"):
        features.add("system" if role == "system" else "developer")
        if index > 0:
            features.add("late_system")
        _check_set(message, known.MESSAGE)
    elif role == "user":
        _check_set(message, known.MESSAGE)
    else:
        raise _NeverSent("unknown_field")
    if message.get("name") is not None:
        features.add("name")
    _content(message.get("content"), role, features)


def _assistant(message: Json, features: set[Feature]) -> None:
    _check_set(message, known.MESSAGE | known.ASSISTANT)
    reasonings = message.get("reasoning"), message.get("reasoning_content")
    given = [reasoning for reasoning in reasonings if reasoning is not None]
    if given:
        # Which of two counts is not the same for all releases.
        if not isinstance(given[0], str) or given[0] != given[-1]:
            raise _NeverSent("unknown_field")
        features.add("reasoning")
    calls = message.get("tool_calls")
    if calls is None:
        return
    features.add("tool_turns")
    if not isinstance(calls, list):
        raise _NeverSent("unknown_field")
    for call in calls:
        function = _object(call, "function", known.CALL)
        _check_fields(function, known.CALLED)
        if not isinstance(function.get("arguments"), str):
            raise _NeverSent("unknown_field")


def _content(content: object, role: object, features: set[Feature]) -> None:
    if isinstance(content, list):
        features.add("tool_parts" if role == "tool" else "parts")
        for part in content:
            _part(part)
        texts = [part["text"] for part in content]
    elif isinstance(content, str) or content is None:
        texts = [content or ""]
    else:
        raise _NeverSent("unknown_field")
    if not any(texts):
        features.add("empty_content")
    if role == "system" and any(text.startswith(BILLING_HEADER) for text in texts):
        features.add("billing_header")


def _part(part: object) -> None:
    if is_media(part):
        raise _NeverSent("media")
    if not isinstance(part, dict) or part.get("type") != "text":
        raise _NeverSent("unknown_field")
    if not isinstance(part.get("text"), str):
        raise _NeverSent("unknown_field")
    _check_fields(part, known.TEXT_PART)


def _tools(body: Mapping[str, object], features: set[Feature]) -> None:
    choice, tools = body.get("tool_choice"), body.get("tools")
    if isinstance(choice, dict):
        raise _NeverSent("named_tool_choice")
    if choice not in (None, "none", "auto", "required"):
        raise _NeverSent("unknown_field")
    if tools is None:
        return
    if not isinstance(tools, list):
        raise _NeverSent("unknown_field")
    features.add("tools")
    if choice == "none":
        features.add("tool_choice_none")
    for tool in tools:
        function = _object(tool, "function", frozenset({"type", "function"}))
        _check_fields(function, known.FUNCTION)
        if function.get("strict") is not None:
            features.add("strict_tools")


def _object(value: object, name: str, fields: frozenset[str]) -> Json:
    """The object by that name in an object of these fields; their type is function."""
    if not isinstance(value, dict) or value.get("type") != "function":
        raise _NeverSent("unknown_field")
    _check_fields(value, fields)
    inner = value.get(name)
    if not isinstance(inner, dict):
        raise _NeverSent("unknown_field")
    return inner


def _check_fields(value: Json, fields: frozenset[str]) -> None:
    if not fields.issuperset(value):
        raise _NeverSent("unknown_field")


def _check_set(message: Json, fields: frozenset[str]) -> None:
    """A message's field that is not set is as good as absent: no engine shows it."""
    for name, value in message.items():
        if value is not None and name not in fields:
            raise _NeverSent("unknown_field")
