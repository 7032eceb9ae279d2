"""`/tokenize` and `/detokenize` of SGLang: what its rendering is probed with."""

from typing import Any

from render import Renderer
from render.fields import read_fields
from simworker.errors import ApiError, not_valid
from simworker.planning import Planner, token_list
from simworker.request import Body
from simworker.sglang import fields as tables

# Not a chat's in this body: `input_ids` are ignored, the other is for prompts.
NOT_CHAT = ("prompt", "add_special_tokens", "input_ids")


def tokenize(planner: Planner, body: Body, *, max_model_len: int) -> dict[str, Any]:
    """The answer to prompts, or to messages as a chat shows them.

    `add_generation_prompt`, which asks for another rendering, is not simulated.
    Raises RenderRefused.
    """
    fields = read_fields(body, tables.TOKENIZE)
    prompt, messages = fields["prompt"], fields["messages"]
    if (prompt is None) == (messages is None):
        text = "Exactly one of 'prompt' or 'messages' must be provided."
        raise not_valid("value_error", "body", f"Value error, {text}", body)
    if fields["add_generation_prompt"] is not None:
        raise ApiError("add_generation_prompt is not supported by this worker.")
    tokens: Any
    if messages is not None:
        chat = {name: v for name, v in body.items() if name not in NOT_CHAT}
        tokens = token_list(planner.render_chat(chat))
    elif isinstance(prompt, str):
        tokens = _encoded(planner, prompt, fields["add_special_tokens"])
    elif isinstance(prompt, list) and all(isinstance(item, str) for item in prompt):
        special = fields["add_special_tokens"]
        tokens = [_encoded(planner, item, special) for item in prompt]
    else:
        text = "Input should be a valid string"
        raise not_valid("string_type", "body.prompt", text, prompt)
    nested = isinstance(prompt, list)
    count = [len(item) for item in tokens] if nested else len(tokens)
    return {"tokens": tokens, "count": count, "max_model_len": max_model_len}


def _encoded(planner: Planner, text: str, special: bool) -> list[int]:
    body = {"prompt": text, "add_special_tokens": special}
    return token_list(planner.render_completion(body)[0]) if text else []


def detokenize(renderer: Renderer, body: Body) -> dict[str, Any]:
    """The text of ids, or of each list of ids. Raises RenderRefused."""
    if "tokens" not in body:
        raise not_valid("missing", "body.tokens", "Field required", body)
    fields = read_fields(body, tables.DETOKENIZE)
    tokens, skip = fields["tokens"], fields["skip_special_tokens"]
    nested = isinstance(tokens, list) and bool(tokens) and isinstance(tokens[0], list)
    texts = [
        renderer.detokenize(_ids(item), skip_special_tokens=skip)
        for item in (tokens if nested else [tokens])
    ]
    return {"text": texts if nested else texts[0]}


def _ids(value: object) -> list[int]:
    if isinstance(value, list) and all(
        type(item) is int and 0 <= item < 1 << 32 for item in value
    ):
        return value
    raise not_valid("list_type", "body.tokens", "Input should be a list of ids", value)
