"""What SGLang hands its chat template, told from the behaviour of 0.5.23.

`srt/entrypoints/openai/serving_chat.py`, `srt/parser/jinja_template_utils.py`: parts
are joined with a space, keys without a value are dropped, a last message of the
assistant is shown as the user's unless it is to be continued, and tools are shown as
the client wrote them, and only those that may be called.
"""

import json
from collections.abc import Iterator, Mapping

from render.body import ChatBody, Json, flag, function_of, mapping, objects
from render.content_format import ContentFormat
from render.conversation import TEMPLATE_PARAMETERS, Conversation
from render.errors import Unrenderable
from render.harmony import TurnsOf
from render.message_checks import named_tool
from render.messages import is_media, is_reference, messages_of
from render.model import Model
from render.rules import AnswerRules
from render.template import ChatTemplate, ChatTemplates

NAME = "sglang"
ANSWERS = AnswerRules(
    ids_field=("input_ids",),
    unsaid_reasoning=None,
    sets_tokenizing=False,
    efforts=(),
)
HARMONY: TurnsOf | None = None  # how it renders gpt-oss is not known

# Model types whose prompts SGLang writes itself.
OWN_RENDERERS = {
    "gpt_oss": "rendered by openai-harmony",
    "deepseek_v32": "rendered by SGLang's DeepSeek V3.2 encoder",
    "deepseek_v4": "rendered by SGLang's DeepSeek V4 encoder",
    "deepseek_v41": "rendered by SGLang's DeepSeek V4.1 encoder",
    "kimi_k3": "rendered by SGLang's Kimi K3 encoder",
    "inkling": "rendered by SGLang's Inkling renderer",
    "minimax_m3": "adjusted by SGLang's MiniMax M3 rules",
}
ROLES = frozenset(
    ["system", "assistant", "tool", "function", "developer", "latest_reminder", "root"]
)
MEDIA_WORDS = ("image", "audio", "video", "vision")
LOOPED = frozenset({"message", "msg", "m"})  # loops over their content are looked for
TEXTS = ("text", "input_text")
# The fields of a message other than the user's, in the order of the engine's model.
FIELDS = ("tool_call_id", "name", "phase", "reasoning_content", "tool_calls", "tools")
# Arguments the engine gives itself: a variable of that name is an error there.
GIVEN = frozenset(
    {"conversation", "add_generation_prompt", "tools", "tokenize", "return_dict"}
)


def prepare(
    body: ChatBody,
    templates: ChatTemplates,
    *,
    content_format: ContentFormat | None,
    defaults: Mapping[str, object],
) -> Conversation:
    """The template for a chat body and the variables it is rendered with.

    Raises Unrenderable.
    """
    variables = template_variables(body, defaults)
    if body.chat_template is not None or "chat_template" in variables:
        raise Unrenderable("request_template", "the request brings a chat template")
    if not GIVEN.isdisjoint(variables):
        raise Unrenderable("bad_field", "chat_template_kwargs may not set this")
    if variables.pop("continue_final_message", None):
        raise Unrenderable("bad_field", "chat_template_kwargs may not set this")
    tools = _tools(body.tools, body.tool_choice)
    template = templates.choose(tools=tools is not None, processor_first=False)
    _add_low_effort(variables, template)
    messages = _messages(body.messages, content_format or wanted_format(template))
    continues = flag(
        body.continue_final_message, "continue_final_message", default=False
    )
    messages, appended = _last_assistant(messages, continues=continues)
    documents = variables.pop("documents", None)
    if documents is not None:
        objects(documents, "documents")
    return Conversation(
        template=template,
        messages=messages,
        tools=tools,
        bare_tools=tools and [tool["function"] for tool in tools],
        documents=documents,
        add_generation_prompt=True,
        continue_final_message=False,
        appended=appended,
        variables={n: v for n, v in variables.items() if n not in TEMPLATE_PARAMETERS},
    )


def forwarded_ids(body: ChatBody) -> list[object] | None:
    """Token ids that the client gives itself, in place of the messages."""
    return body.input_ids if isinstance(body.input_ids, list) else None


def parser_kwargs(body: ChatBody, defaults: Mapping[str, object]) -> Json:
    """The template variables a reasoning parser is told: all of the request's."""
    return template_variables(body, defaults)


def refusal(model: Model) -> str | None:
    """Why SGLang does not use this model's chat template, if so."""
    return OWN_RENDERERS.get(model.model_type or "")


def wanted_format(template: ChatTemplate) -> ContentFormat:
    """By a word anywhere in the template, or a loop over a message's content."""
    if any(word in template.source for word in MEDIA_WORDS):
        return "openai"
    return "string" if LOOPED.isdisjoint(template.looped_contents) else "openai"


def template_variables(body: ChatBody, defaults: Mapping[str, object]) -> Json:
    """The request's variables, what its reasoning options mean, the server's below."""
    own = dict(mapping(body.chat_template_kwargs, "chat_template_kwargs"))
    reasoning = body.reasoning if isinstance(body.reasoning, dict) else {}
    effort = reasoning.get("effort", reasoning.get("reasoning_effort"))
    if effort is None:
        effort = body.reasoning_effort
    if isinstance(effort, bool) or not isinstance(effort, str | int | float | None):
        raise Unrenderable("bad_field", "reasoning_effort is neither level nor number")
    thinking = None if effort is None else effort != "none"
    if thinking is None and _switched_on(reasoning):
        thinking = True
    if thinking is not None:
        own.setdefault("thinking", thinking)
        own.setdefault("enable_thinking", thinking)
    variables = {**defaults, **own}
    if effort is not None:
        variables.setdefault("reasoning_effort", effort)
    return variables


def _switched_on(reasoning: Json) -> bool:
    value = reasoning.get("enabled")
    if value is None:
        value = reasoning.get("enable", False)
    if isinstance(value, str):
        return value.strip().lower() in ("1", "true", "yes", "y", "on")
    return bool(value)


def _add_low_effort(variables: Json, template: ChatTemplate) -> None:
    """Nemotron 3 Super is told of low effort by a variable of its own."""
    marks = ("low_effort", "truncate_history_thinking")
    if variables.get("reasoning_effort") == "low" and all(
        mark in template.source for mark in marks
    ):
        variables.setdefault("low_effort", True)


def _tools(tools: object, choice: object) -> list[Json] | None:
    """Those that may be called, in the client's order of keys, absent ones null."""
    if tools is None:
        return None
    name = named_tool(choice)
    shown = [
        tool
        for tool in map(_tool, objects(tools, "tools"))
        if name is None or tool["function"]["name"] == name
    ]
    return None if choice == "none" or not shown else shown


def _tool(tool: Json) -> Json:
    function = function_of(tool, "a tool")
    deferred = tool.get("defer_loading")
    known: Json = {
        "description": function.get("description"),
        "name": function.get("name"),
        "parameters": function.get("parameters"),
    }
    if function.get("strict") is not None:
        known["strict"] = function["strict"]
    if function.get("defer_loading", deferred) is not None:
        known["defer_loading"] = function.get("defer_loading", deferred)
    in_order = [name for name in function if name in known]
    shown = {name: known[name] for name in (*in_order, *known)}
    kind = tool.get("type", "function")
    return {"type": kind, "function": shown, "defer_loading": deferred}


def _messages(messages: object, content_format: ContentFormat) -> list[Json]:
    return [_message(message, content_format) for message in messages_of(messages)]


def _message(message: Json, content_format: ContentFormat) -> Json:
    role = message["role"]
    if role == "user":
        fields: Json = {}
    elif role.lower() in ROLES:
        role = role.lower()
        fields = {name: message.get(name) for name in FIELDS}
        fields["tool_calls"] = _tool_calls(message.get("tool_calls"), role)
        fields["tools"] = _message_tools(message.get("tools"))
    else:
        raise Unrenderable("bad_messages", "a role that SGLang refuses")
    given = {name: value for name, value in fields.items() if value is not None}
    return _with_content(role, message.get("content"), given, content_format)


def _with_content(
    role: str, content: object, given: Json, content_format: ContentFormat
) -> Json:
    """The message; a list of parts comes last in it, a text second."""
    if content is None or isinstance(content, str):
        return {"role": role, "content": content or "", **given}
    if not isinstance(content, list):
        raise Unrenderable("bad_messages", "content is neither a string nor a list")
    parts = list(_shown_parts(content))
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if content_format == "string":
        return {"role": role, "content": " ".join(texts), **given}
    only_texts = role == "tool" and len(texts) == len(parts)
    return {"role": role, **given, "content": " ".join(texts) if only_texts else parts}


def _message_tools(tools: object) -> list[Json] | None:
    if tools is None:
        return None
    return [_tool(tool) for tool in objects(tools, "a message's tools", "bad_messages")]


def _shown_parts(content: list[object]) -> Iterator[Json]:
    for part in content:
        if is_media(part):
            raise Unrenderable("media", "content that is not text")
        if not isinstance(part, dict):
            raise Unrenderable("bad_messages", "a content part that is no object")
        if part.get("type") in TEXTS and isinstance(part.get("text"), str):
            yield {"type": "text", "text": part["text"]}
        elif is_reference(part) and isinstance(part.get("name"), str):
            yield {"type": "tool_reference", "name": part["name"]}
        elif part.get("type") not in ("thinking", "reasoning"):
            raise Unrenderable("bad_messages", "a content part of unknown type")


def _tool_calls(calls: object, role: str) -> list[Json] | None:
    """Calls as the engine's model dumps them, with an index; arguments an object."""
    if calls is None:
        return None
    shown = []
    for call in objects(calls, "tool_calls", "bad_messages"):
        function = function_of(call, "a tool call", "bad_messages")
        arguments = function.get("arguments")
        if role == "assistant" and isinstance(arguments, str):
            arguments = _arguments(arguments)
        shown.append(
            {
                "id": call.get("id"),
                "index": call.get("index"),
                "type": "function",
                "function": {"name": function.get("name"), "arguments": arguments},
            }
        )
    return shown


def _arguments(arguments: str) -> Json:
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise Unrenderable("bad_messages", "arguments that are no JSON") from error
    if not isinstance(parsed, dict):
        raise Unrenderable("bad_messages", "tool call arguments that are no object")
    return parsed


def _last_assistant(messages: list[Json], *, continues: bool) -> tuple[list[Json], str]:
    """The messages to show, and the text that goes after the generation prompt."""
    last = messages[-1]
    if last["role"] != "assistant" or not isinstance(last["content"], str):
        return messages, ""
    if continues:
        return messages[:-1], last["content"]
    return [*messages[:-1], {"role": "user", "content": last["content"]}], ""
