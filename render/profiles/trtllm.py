"""What TensorRT-LLM hands its chat template, told from its behaviour.

`tensorrt_llm/serve/chat_utils.py`, `inputs/utils.py` and `serve/render/chat.py`: text
parts become one string whatever the template wants, `name` is dropped, the empty list
of media stays, and template variables are passed on as the request has them.
"""

import json
from collections.abc import Mapping

from render.body import ChatBody, Json, flag, function_of, mapping, objects
from render.content_format import ContentFormat
from render.conversation import TEMPLATE_PARAMETERS, Conversation
from render.errors import Unrenderable
from render.harmony import TurnsOf
from render.messages import is_media, messages_of, ordered
from render.model import Model
from render.profiles.trtllm_fields import CHAT_FIELDS, COMPLETION_FIELDS
from render.profiles.trtllm_harmony import turns
from render.rules import AnswerRules
from render.template import ChatTemplates

NAME = "trtllm"
ANSWERS = AnswerRules(
    chat_fields=CHAT_FIELDS,
    completion_fields=COMPLETION_FIELDS,
    ids_field=("prompt_token_ids",),
    id_digits=32,
    always_numbered=True,
    unsaid_reasoning=None,
    keeps_first=True,
)
HARMONY: TurnsOf | None = turns

# Model types whose prompts TensorRT-LLM writes itself, or by a processor of the model.
OWN_RENDERERS = {
    "gpt_oss": "rendered by openai-harmony",
    "deepseek_v32": "rendered by TensorRT-LLM's DeepSeek V3.2 tokenizer",
    "deepseek_v4": "rendered by TensorRT-LLM's DeepSeek V4 tokenizer",
    "kimi_k3": "rendered by TensorRT-LLM's Kimi K3 renderer",
}
MISTRAL_FILES = ("tekken.json", "tokenizer.model.v*")
# Arguments the engine gives itself: a variable of that name is an error there.
GIVEN = frozenset(
    {"conversation", "add_generation_prompt", "tools", "documents", "tokenize"}
)


def prepare(
    body: ChatBody,
    templates: ChatTemplates,
    *,
    content_format: ContentFormat | None,
    defaults: Mapping[str, object],
) -> Conversation:
    """The template for a chat body and the variables it is rendered with.

    The content format only matters for media, which are not rendered here. Raises
    Unrenderable.
    """
    variables = parser_variables(body, defaults)
    if body.chat_template is not None or "chat_template" in variables:
        raise Unrenderable("request_template", "the request brings a chat template")
    if not GIVEN.isdisjoint(variables):
        raise Unrenderable("bad_field", "chat_template_kwargs may not set this")
    generates = flag(body.add_generation_prompt, "add_generation_prompt", default=True)
    continues = _continues(body, variables)
    if continues and generates:
        raise Unrenderable(
            "bad_field", "continue_final_message needs add_generation_prompt false"
        )
    documents = body.documents
    if documents is not None:
        objects(documents, "documents")
    tools = _tools(body.tools)
    return Conversation(
        template=templates.choose(tools=tools is not None, processor_first=False),
        messages=_messages(body.messages),
        tools=tools,
        documents=documents,
        add_generation_prompt=generates,
        continue_final_message=continues,
        variables={n: v for n, v in variables.items() if n not in TEMPLATE_PARAMETERS},
    )


def forwarded_ids(body: ChatBody) -> list[object] | None:
    """Token ids that the client gives itself, in place of the messages."""
    ids = body.prompt_token_ids
    return ids if isinstance(ids, list) and ids else None


def parser_kwargs(body: ChatBody, defaults: Mapping[str, object]) -> Json:
    """The template variables a reasoning parser is told: the request's own."""
    return mapping(body.chat_template_kwargs, "chat_template_kwargs")


def parser_variables(body: ChatBody, defaults: Mapping[str, object]) -> Json:
    """The request's template variables over the server's."""
    return {**defaults, **mapping(body.chat_template_kwargs, "chat_template_kwargs")}


def refusal(model: Model) -> str | None:
    """Why TensorRT-LLM does not use this model's template for chats, if so."""
    reason = OWN_RENDERERS.get(model.model_type or "")
    if reason is None and any(map(model.has_file, MISTRAL_FILES)):
        reason = "rendered by mistral-common"
    return reason


def _continues(body: ChatBody, variables: Json) -> bool:
    value = variables.get("continue_final_message", body.continue_final_message)
    return flag(value, "continue_final_message", default=False)


def _tools(tools: object) -> list[Json] | None:
    """Tools as the engine's models dump them: known keys in order, absent ones null."""
    if tools is None:
        return None
    return [_tool(tool) for tool in objects(tools, "tools")]


def _tool(tool: Json) -> Json:
    function = function_of(tool, "a tool")
    shown = {
        "name": function.get("name"),
        "description": function.get("description"),
        "parameters": function.get("parameters"),
    }
    if function.get("strict") is not None:
        shown["strict"] = function["strict"]
    return {"type": tool.get("type", "function"), "function": shown}


def _messages(messages: object) -> list[Json]:
    known = messages_of(messages)
    strict = all(map(_is_strict, known))
    return [_message(message, strict=strict) for message in known]


def _message(message: Json, *, strict: bool) -> Json:
    role = message["role"]
    shown: Json = {"role": role, "content": _text(message.get("content")), "media": []}
    if role == "assistant":
        reasoning = message.get("reasoning")
        if reasoning is None:
            reasoning = message.get("reasoning_content")
        if reasoning is not None:
            shown["reasoning_content"] = reasoning
        if message.get("tool_calls") is not None:
            shown["tool_calls"] = _tool_calls(message["tool_calls"], strict=strict)
    elif role == "tool" and "tool_call_id" in message:
        shown["tool_call_id"] = message["tool_call_id"]
    elif role == "system" and message.get("tools") is not None:
        shown["tools"] = message["tools"]
    return shown


def _text(content: object) -> str:
    """The text of all parts, a line each; empty ones are left out."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise Unrenderable("bad_messages", "content is neither a string nor a list")
    return "\n".join(text for text in map(_part_text, content) if text)


def _part_text(part: object) -> str | None:
    if isinstance(part, str):
        return part
    if is_media(part):
        raise Unrenderable("media", "content that is not text")
    if not isinstance(part, dict) or part.get("type") != "text":
        raise Unrenderable("bad_messages", "a content part of unknown type")
    text = part.get("text")
    if text is not None and not isinstance(text, str):
        raise Unrenderable("bad_messages", "a text part whose text is no string")
    return text


def _tool_calls(calls: object, *, strict: bool) -> list[Json]:
    # A body its strict models refuse is read again as it was written.
    first = ("id", "function", "type") if strict else ("id", "type", "function")
    inner = ("arguments", "name") if strict else ("name", "arguments")
    shown = []
    for call in objects(calls, "tool_calls", "bad_messages"):
        function = function_of(call, "a tool call", "bad_messages")
        function = ordered(function, inner)
        function["arguments"] = _arguments(function.get("arguments"))
        shown.append(ordered({**call, "function": function}, first))
    return shown


def _arguments(arguments: object) -> object:
    """An object; a string that is no JSON stays as it is."""
    if arguments is None:
        return {}
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
        arguments = parsed
    if not isinstance(arguments, dict):
        raise Unrenderable("bad_messages", "tool call arguments that are no object")
    return arguments


def _is_strict(message: Json) -> bool:
    """Whether the tool calls are as the API describes them."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if not (
            isinstance(function, dict)
            and isinstance(call.get("id"), str)
            and call.get("type") == "function"
            and isinstance(function.get("name"), str)
            and isinstance(function.get("arguments"), str)
        ):
            return False
    return True
