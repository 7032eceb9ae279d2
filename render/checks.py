"""What vLLM 0.32 refuses in a body before it renders: fields that contradict others.

Each check reads the body as it came, before the types of fields are known, in the
order in which the engine checks.
"""

import json

from render.body import Json
from render.message_checks import check_tools
from render.refused import RenderRefused, bad_value, missing, not_valid

SALT_CHARACTERS = "@/\\\0"  # not allowed in a cache salt
MAX_SALT = 128
FORMATS = ("text", "json_object", "json_schema", "structural_tag")
USAGE = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'


def check_chat(body: Json) -> None:
    """All checks of a chat body; raises RenderRefused."""
    check_generation_prompt(body)
    _tool_usage(body)
    _structured_outputs(body)
    _logprobs(body)
    _stream_options(body)
    _response_format(body)
    check_cache_salt(body)


def check_completion(body: Json) -> None:
    """All checks of a completion body; raises RenderRefused."""
    prompt = body.get("prompt")
    embeds = body.get("prompt_embeds")
    if prompt in (None, "") and embeds in (None, "", []):
        raise bad_value(
            "Either prompt or prompt_embeds must be provided and non-empty.", "prompt"
        )
    if embeds not in (None, "", []):
        raise bad_value(
            "You must set `--enable-prompt-embeds` to input `prompt_embeds`.",
            "prompt_embeds",
        )
    _structured_outputs(body)
    _completion_logprobs(body)
    _stream_options(body)
    _response_format(body)
    check_cache_salt(body)
    _prompt_shape(prompt)


def check_generation_prompt(body: Json) -> None:
    """A prompt that goes on has no beginning of an answer; raises RenderRefused."""
    if body.get("continue_final_message") and body.get("add_generation_prompt"):
        raise RenderRefused(
            "Cannot set both `continue_final_message` and "
            "`add_generation_prompt` to True."
        )


def _tool_usage(body: Json) -> None:
    tools, choice = body.get("tools"), body.get("tool_choice")
    if tools == []:
        raise bad_value(
            "`tools` must not be an empty array. Either provide at least one tool or "
            "omit the field entirely.",
            "tools",
        )
    if choice is None or choice == "none":
        return
    if tools is None:
        raise bad_value("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if choice not in ("auto", "required") and not isinstance(choice, dict):
        raise bad_value(
            f"Invalid value for `tool_choice`: {choice}! "
            'Only named tools, "none", "auto" or "required" are supported.',
            "tool_choice",
        )
    if isinstance(choice, dict):
        _named_choice(choice, tools)


def _named_choice(choice: Json, tools: object) -> None:
    function = choice.get("function")
    if not isinstance(function, dict):
        raise bad_value(
            f"Invalid value for `function`: `{function}` in `tool_choice`! {USAGE}",
            "tool_choice.function",
        )
    if "name" not in function:
        raise bad_value(
            f"Expected field `name` in `function` in `tool_choice`! {USAGE}",
            "tool_choice.function.name",
        )
    name = function["name"]
    if not isinstance(name, str) or not name:
        raise bad_value(
            f"Invalid `name` in `function`: `{name}` in `tool_choice`! {USAGE}",
            "tool_choice.function.name",
        )
    check_tools(tools)
    known = tools if isinstance(tools, list) else []
    if name not in [tool["function"]["name"] for tool in known]:
        raise bad_value(
            "The tool specified in `tool_choice` does not match any of the specified "
            "`tools`",
            "tool_choice",
        )


def _structured_outputs(body: Json) -> None:
    given = body.get("structured_outputs")
    if not isinstance(given, dict):
        return
    if sum(given.get(name) is not None for name in ("json", "regex", "choice")) > 1:
        raise RenderRefused(
            "You can only use one kind of constraints for structured outputs ('json', "
            "'regex' or 'choice')."
        )


def _logprobs(body: Json) -> None:
    ids = body.get("logprob_token_ids")
    if isinstance(ids, list) and ids and not body.get("logprobs"):
        raise bad_value(
            "when using `logprob_token_ids`, `logprobs` must be set to true.",
            "logprob_token_ids",
        )
    for name in ("prompt_logprobs", "top_logprobs"):
        _whole(body, name)
    _prompt_logprobs(body)
    top = body.get("top_logprobs")
    if top is not None and (top > 0 or top == -1) and not body.get("logprobs"):
        raise bad_value(
            "when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs"
        )
    _positive(body, "top_logprobs")


def _completion_logprobs(body: Json) -> None:
    if body.get("logprob_token_ids") and body.get("logprobs") is None:
        raise bad_value(
            "when using `logprob_token_ids`, `logprobs` must be set.",
            "logprob_token_ids",
        )
    for name in ("prompt_logprobs", "logprobs"):
        _whole(body, name)
    _prompt_logprobs(body)
    _positive(body, "logprobs")


def _prompt_logprobs(body: Json) -> None:
    wanted = body.get("prompt_logprobs")
    if wanted is not None and body.get("stream") and (wanted > 0 or wanted == -1):
        raise bad_value(
            "`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs"
        )
    _positive(body, "prompt_logprobs")


def _whole(body: Json, name: str) -> None:
    value = body.get(name)
    if value is not None and not isinstance(value, int | float):
        raise bad_value(f"`{name}` must be an integer.", name, value)


def _positive(body: Json, name: str) -> None:
    value = body.get(name)
    if value is not None and value < 0 and value != -1:
        raise bad_value(f"`{name}` must be a positive value or -1.", name, value)


def _stream_options(body: Json) -> None:
    if body.get("stream_options") and not body.get("stream"):
        raise bad_value(
            "Stream options can only be defined when `stream=True`.", "stream_options"
        )


def _response_format(body: Json) -> None:
    wanted = body.get("response_format")
    if not isinstance(wanted, dict):
        return
    kind = wanted.get("type")
    if kind not in FORMATS:
        where = "body.response_format.ResponseFormat.type"
        if "type" not in wanted:
            raise missing(where, wanted)
        message = "Input should be 'text', 'json_object' or 'json_schema'"
        raise not_valid("literal_error", where, message, kind)
    schema = wanted.get("json_schema")
    if kind != "json_schema":
        return
    if not isinstance(schema, dict):
        raise bad_value(
            "When response_format type is 'json_schema', the 'json_schema' field must "
            "be provided.",
            "response_format",
        )
    if not isinstance(schema.get("name"), str):
        raise missing("body.response_format.json_schema.name", schema)


def check_cache_salt(body: Json) -> None:
    """A salt is a short text without certain marks; raises RenderRefused."""
    salt = body.get("cache_salt")
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise bad_value(
            "Parameter 'cache_salt' must be a non-empty string if provided.",
            "cache_salt",
        )
    if len(salt) > MAX_SALT or any(mark in salt for mark in SALT_CHARACTERS):
        raise bad_value(
            f"Parameter 'cache_salt' must have at most {MAX_SALT} characters and none "
            f"of {json.dumps(list(SALT_CHARACTERS))}.",
            "cache_salt",
        )


def _prompt_shape(prompt: object) -> None:
    """A text, texts, ids or lists of ids; the engine names the first item it cannot."""
    if prompt is None or isinstance(prompt, str):
        return
    where = "body.prompt"
    if not isinstance(prompt, list):
        message = "Input should be a valid string"
        raise not_valid("string_type", where, message, prompt)
    if prompt and isinstance(prompt[0], list):
        for index, ids in enumerate(prompt):
            if not isinstance(ids, list):
                message = "Input should be a valid list"
                raise not_valid("list_type", f"{where}.{index}", message, ids)
            _ids(ids, f"{where}.{index}")
    elif not all(isinstance(text, str) for text in prompt):
        _ids(prompt, where)


def _ids(ids: list[object], where: str) -> None:
    for index, token_id in enumerate(ids):
        if type(token_id) is not int:
            message = "Input should be a valid integer"
            # A list that is mixed is refused for its first item.
            first = 0 if isinstance(ids[0], str) else index
            raise not_valid("int_type", f"{where}.{first}", message, token_id)
        if token_id < 0:
            message = "Input should be greater than or equal to 0"
            raise not_valid(
                "greater_than_equal", f"{where}.{index}", message, token_id, ge=0
            )
