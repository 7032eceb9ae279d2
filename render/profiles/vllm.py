"""What vLLM hands its chat template: messages, tools and variables made of a body.

This is what vLLM 0.32 does between the request and `apply_chat_template`, told from
its behaviour (`vllm/renderers/hf.py`, `renderers/chat_utils/`, `chat_completion/
protocol.py`), down to the order of keys, which a template may print. What a worker
would refuse for other reasons (parsers, lengths, tool_choice) does not matter here.
"""

import json
from collections.abc import Iterator, Mapping

from render.body import ChatBody, Json, flag, function_of, mapping, objects
from render.content_format import ContentFormat
from render.conversation import TEMPLATE_PARAMETERS, Conversation
from render.errors import Unrenderable
from render.harmony import TurnsOf
from render.messages import (
    content_parts,
    is_media,
    is_reference,
    joined_text,
    messages_of,
    ordered,
    text_part,
)
from render.model import Model
from render.profiles.vllm_harmony import turns
from render.rules import AnswerRules
from render.template import ChatTemplates

NAME = "vllm"
ANSWERS = AnswerRules(
    ids_field=("kv_transfer_params", "prompt_token_ids"),
    tools_need_parser=True,
    strict_messages=True,
    parses_harmony=True,
)
HARMONY: TurnsOf | None = turns

# Model types whose prompts vLLM writes itself (`vllm/renderers/`).
OWN_RENDERERS = {
    "gpt_oss": "rendered by openai-harmony",
    "deepseek_v32": "rendered by vLLM's DeepSeek V3.2 encoder",
    "deepseek_v4": "rendered by vLLM's DeepSeek V4 encoder",
    "deepseek_v41": "rendered by vLLM's DeepSeek V4.1 encoder",
    "kimi_k3": "rendered by vLLM's Kimi K3 renderer",
    "inkling": "rendered by vLLM's Inkling renderer",
}
# vLLM takes a repository with these files for a Mistral one.
MISTRAL_FILES = ("tekken.json", "tokenizer.model.v*")
BILLING_HEADER = "x-anthropic-billing-header"


def prepare(
    body: ChatBody,
    templates: ChatTemplates,
    *,
    content_format: ContentFormat | None,
    defaults: Mapping[str, object],
) -> Conversation:
    """The template for a chat body and the variables it is rendered with.

    `content_format` overrides what the template seems to want, `defaults` are the
    server's own template variables. Raises Unrenderable.
    """
    variables = template_variables(body, defaults)
    tools = variables.pop("tools", None)
    documents = variables.pop("documents", None)
    for name, value in (("tools", tools), ("documents", documents)):
        if value is not None:
            objects(value, name)
    template = templates.choose(tools=tools is not None, processor_first=tools is None)
    messages = _messages(body.messages, content_format or template.content_format)
    if not template.knows_developer:
        messages = _without_developer(messages)
    continues = variables["continue_final_message"] is True
    if continues and variables["add_generation_prompt"] is True:
        raise Unrenderable(
            "bad_field", "continue_final_message needs add_generation_prompt false"
        )
    return Conversation(
        template=template,
        messages=messages,
        tools=tools,
        documents=documents,
        add_generation_prompt=variables.pop("add_generation_prompt"),
        continue_final_message=continues,
        variables={
            name: value
            for name, value in variables.items()
            if name in template.variables and name not in TEMPLATE_PARAMETERS
        },
    )


def forwarded_ids(body: ChatBody) -> list[object] | None:
    """Token ids that the client gives itself: vLLM takes them instead of messages."""
    if not isinstance(body.kv_transfer_params, dict) or body.echo:
        return None
    ids = body.kv_transfer_params.get("prompt_token_ids")
    if not isinstance(ids, list) or not ids:
        return None
    messages = body.messages if isinstance(body.messages, list) else []
    contents = (m.get("content") for m in messages if isinstance(m, dict))
    parts = [part for c in contents if isinstance(c, list) for part in c]
    return None if any(is_media(part) for part in parts) else ids


def parser_kwargs(body: ChatBody, defaults: Mapping[str, object]) -> Json:
    """The template variables a reasoning parser is told: all but the tools."""
    variables = template_variables(body, defaults)
    variables.pop("tools", None)
    return {"cohere_format": "cmd4", **variables}


def refusal(model: Model) -> str | None:
    """Why vLLM renders this model's chats by other means than its template, if so."""
    reason = OWN_RENDERERS.get(model.model_type or "")
    if reason is None and any(map(model.has_file, MISTRAL_FILES)):
        reason = "rendered by mistral-common"
    return reason


def template_variables(body: ChatBody, defaults: Mapping[str, object]) -> Json:
    """Template variables; the request's fields win over its kwargs, these over ours."""
    kwargs = mapping(body.chat_template_kwargs, "chat_template_kwargs")
    if body.chat_template is not None or kwargs.get("chat_template") is not None:
        raise Unrenderable("request_template", "the request brings a chat template")
    if "tokenize" in kwargs or "chat_template" in kwargs:
        raise Unrenderable("bad_field", "chat_template_kwargs may not set this")
    effort = body.reasoning_effort
    if effort is not None and not isinstance(effort, str):
        raise Unrenderable("bad_field", "reasoning_effort is not a string")
    fields: Json = {
        "add_generation_prompt": flag(
            body.add_generation_prompt, "add_generation_prompt", default=True
        ),
        "continue_final_message": flag(
            body.continue_final_message, "continue_final_message", default=False
        ),
        "documents": body.documents,
        "reasoning_effort": effort,
    }
    if effort is not None and "enable_thinking" not in kwargs:
        fields["enable_thinking"] = effort != "none"
    server = _merged(defaults, {"tools": _tools(body.tools)})
    return _merged(server, _merged(kwargs, fields))


def _merged(lower: Mapping[str, object], upper: Mapping[str, object]) -> Json:
    """None and "auto" count as unset."""
    given = {k: v for k, v in upper.items() if v is not None and v != "auto"}
    return {**lower, **given}


def _tools(tools: object) -> list[Json] | None:
    """Tools as vLLM's models dump them: known keys in their order, absent ones null."""
    if tools is None:
        return None
    return [_tool(tool) for tool in objects(tools, "tools")]


def _tool(tool: Json) -> Json:
    function = function_of(tool, "a tool")
    deferred = _flag(tool, "defer_loading")
    dumped = {
        "name": function.get("name"),
        "description": function.get("description"),
        "parameters": function.get("parameters"),
        "strict": _flag(function, "strict"),
        "defer_loading": _flag(function, "defer_loading", deferred),
    }
    shown = {
        name: value
        for name, value in dumped.items()
        if value is not None or name not in ("strict", "defer_loading")
    }
    result = {"type": tool.get("type", "function"), "function": shown}
    return result if deferred is None else {**result, "defer_loading": deferred}


def _flag(value: Json, name: str, default: bool | None = None) -> bool | None:
    """A flag of a tool as its dump shows it: `"1"` is true."""
    given = value.get(name, default)
    return None if given is None else flag(given, name, default=False)


def _messages(messages: object, content_format: ContentFormat) -> list[Json]:
    return [_message(message, content_format) for message in messages_of(messages)]


def _message(message: Json, content_format: ContentFormat) -> Json:
    role = message["role"]
    parts = content_parts(message.get("content"))
    if role == "system":
        parts = list(_without_billing_header(parts))
    shown: Json = {"role": role, "content": _content(parts, content_format)}
    if role == "assistant":
        _add_assistant_fields(shown, message)
    elif role == "tool":
        if "tool_call_id" in message:
            shown["tool_call_id"] = message["tool_call_id"]
        shown["content"] = _tool_content(shown["content"])
    for name in ("name", "task"):
        if isinstance(message.get(name), str):
            shown[name] = message[name]
    if role == "developer":
        shown["tools"] = message.get("tools")
    return shown


def _without_billing_header(parts: list[object]) -> Iterator[object]:
    """Drop a billing line that clients may put first, new in each request, as vLLM."""
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else part
        is_text = not isinstance(part, dict) or part.get("type") == "text"
        if is_text and isinstance(text, str) and text.startswith(BILLING_HEADER):
            rest = text.partition("\n")[2]
            if rest:
                yield {**part, "text": rest} if isinstance(part, dict) else rest
        else:
            yield part


def _content(parts: list[object], content_format: ContentFormat) -> str | list[Json]:
    shown = [part for part in map(text_part, parts) if part is not None]
    if content_format == "openai":
        return shown
    texts = (part["name" if is_reference(part) else "text"] for part in shown)
    return "\n".join(text for text in texts if text)


def _tool_content(content: str | list[Json]) -> str | list[Json]:
    """Most templates take a tool's answer as a string only."""
    if isinstance(content, str) or any(is_reference(part) for part in content):
        return content
    return "\n".join(part["text"] for part in content)


def _add_assistant_fields(shown: Json, message: Json) -> None:
    calls = message.get("tool_calls")
    if calls is not None:
        calls = objects(calls, "tool_calls", "bad_messages")
        if calls:
            shown["tool_calls"] = [_tool_call(call) for call in calls]
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        shown["reasoning"] = reasoning
        shown["reasoning_content"] = reasoning


def _tool_call(call: Json) -> Json:
    function = call.get("function")
    if call.get("type", "function") != "function" or not isinstance(function, dict):
        raise Unrenderable("bad_messages", "a tool call that is not of a function")
    function = {**function, "arguments": _arguments(function.get("arguments"))}
    return ordered(
        {**call, "function": ordered(function, ("arguments", "name"))},
        ("id", "function", "type"),
    )


def _arguments(arguments: object) -> Json:
    """Templates want an object; what is none becomes an empty one."""
    if isinstance(arguments, str) and arguments:
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}


def _without_developer(messages: list[Json]) -> list[Json]:
    """For a template that does not know developers: they are systems, all merged."""
    if not any(message["role"] == "developer" for message in messages):
        return messages
    converted = [
        {k: v for k, v in {**message, "role": "system"}.items() if k != "tools"}
        if message["role"] == "developer"
        else message
        for message in messages
    ]
    systems = [i for i, message in enumerate(converted) if message["role"] == "system"]
    if systems == [0]:
        return converted
    texts = [joined_text(converted[i]["content"]) for i in systems]
    merged = {"role": "system", "content": "\n\n".join(text for text in texts if text)}
    return [merged, *(m for m in converted if m["role"] != "system")]
