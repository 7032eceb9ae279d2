"""The fields of TensorRT-LLM's request models, all that it takes: others are refused.

Told from `tensorrt_llm/serve/openai_protocol.py`.
"""

from collections.abc import Collection, Mapping

from render.body import Json
from render.fields import Field, Table, read_fields
from simworker.errors import not_valid
from simworker.request import Body

_OFF = Field("flag", False)
_ON = Field("flag", True)
_NUMBER = Field("number")
_INTEGER = Field("integer")
_TEXT = Field("text")
_OBJECT = Field("object")
_ANY = Field("any")
_IDS = Field("list", items="integer")

_SAMPLING: Table = {
    "model": Field("text", nullable=False),
    "best_of": _INTEGER,
    "frequency_penalty": _NUMBER,
    "logit_bias": _OBJECT,
    "n": Field("integer", 1, nullable=False),
    "presence_penalty": _NUMBER,
    "seed": _INTEGER,
    "stop": Field("texts"),
    "stream": _OFF,
    "stream_options": _OBJECT,
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "user": _TEXT,
    "lora_request": _OBJECT,
    "prompt_ignore_length": _INTEGER,
    "use_beam_search": _OFF,
    "top_k": _INTEGER,
    "top_p_min": _NUMBER,
    "min_p": _NUMBER,
    "repetition_penalty": _NUMBER,
    "length_penalty": _NUMBER,
    "early_stopping": _ANY,
    "stop_token_ids": _IDS,
    "include_stop_str_in_output": _OFF,
    "ignore_eos": _OFF,
    "min_tokens": _INTEGER,
    "skip_special_tokens": _ON,
    "spaces_between_special_tokens": _ON,
    "truncate_prompt_tokens": Field("integer", low=1),
    "thinking_token_budget": _INTEGER,
    "response_format": _OBJECT,
    "disaggregated_params": _OBJECT,
    "priority": Field("number", low=0, high=1),
    "conversation_params": _OBJECT,
    "echo": _OFF,
}
CHAT: Table = {
    **_SAMPLING,
    "messages": Field("list", items="object", nullable=False),
    "prompt_token_ids": _IDS,
    "prompt_token_ids_b64": _TEXT,
    "logprobs": _OFF,
    "top_logprobs": _INTEGER,
    "max_completion_tokens": _INTEGER,
    "max_tokens": _INTEGER,
    "tools": Field("list", items="object"),
    "tool_choice": Field("any", "none"),
    "parallel_tool_calls": Field("flag"),
    "reasoning_effort": Field(
        "text", "low", choices=("low", "medium", "high", "max", "none")
    ),
    "thinking": _OBJECT,
    "add_generation_prompt": _ON,
    "add_special_tokens": _OFF,
    "documents": Field("list", items="object"),
    "chat_template": _TEXT,
    "chat_template_kwargs": _OBJECT,
    "injected_chat_template_kwargs": Field("list", items="text"),
    "media_io_kwargs": _OBJECT,
    "mm_processor_kwargs": _OBJECT,
    "cache_salt": _TEXT,
    "agent_hierarchy": _ANY,
}
COMPLETION: Table = {
    **_SAMPLING,
    "prompt": _ANY,
    "logprobs": _INTEGER,
    "max_tokens": _INTEGER,
    "suffix": _TEXT,
    "return_context_logits": _OFF,
    "detokenize": _ON,
    "add_special_tokens": _ON,
}
TOKENIZE: Table = {"model": _TEXT, "prompt": Field("text", nullable=False)}

_STREAM_OPTIONS: Table = {
    "include_usage": _ON,
    "continuous_usage_stats": _OFF,
}
_TOOL = ("type", "function")
_FUNCTION = ("name", "description", "parameters", "strict")


def read(body: Body, table: Table, required: Collection[str]) -> Json:
    """The typed fields of a body. Raises RenderRefused."""
    for name in required:
        if name not in body:
            raise not_valid("missing", f"body.{name}", "Field required", body)
    forbid_extras(body, table, "body")
    fields = read_fields(body, table)
    for index, tool in enumerate(fields.get("tools") or ()):
        _check_tool(tool, f"body.tools.{index}")
    if fields.get("stream_options") and not fields["stream"]:
        text = "Value error, Stream options can only be defined when stream is true."
        raise not_valid("value_error", "body", text, body)
    return fields


def stream_options(fields: Json) -> Json:
    """What a stream is to tell; usage, if options are given that do not say no."""
    options = fields["stream_options"]
    if options is None:
        return {"include_usage": False, "continuous_usage_stats": False}
    forbid_extras(options, _STREAM_OPTIONS, "body.stream_options")
    return read_fields(options, _STREAM_OPTIONS)


def forbid_extras(
    value: Mapping[str, object], known: Collection[str], where: str
) -> None:
    """Raises ApiError for the first key that is not known."""
    for name in value:
        if name not in known:
            text = "Extra inputs are not permitted"
            raise not_valid("extra_forbidden", f"{where}.{name}", text, value[name])


def _check_tool(tool: Json, where: str) -> None:
    forbid_extras(tool, _TOOL, where)
    function = tool.get("function")
    if not isinstance(function, dict):
        raise not_valid("missing", f"{where}.function", "Field required", tool)
    forbid_extras(function, _FUNCTION, f"{where}.function")
    if not isinstance(function.get("name"), str):
        raise not_valid("missing", f"{where}.function.name", "Field required", tool)
