"""`/tokenize`, `/detokenize` and `/v1/models` in vLLM's shapes."""

import secrets
from collections.abc import Sequence

from kvindex.blocks import unpack_ids
from render.body import Json
from render.fields import Field, read_fields
from render.prompt import Rendered
from render.refused import RenderRefused, missing, not_valid
from render.renderer import Renderer

MAX_ID = 2**32 - 1


def tokenized(
    renderer: Renderer, rendered: Rendered, limit: int | None, *, spelled: bool
) -> Json:
    """The answer to `/tokenize`; `spelled` adds the vocabulary's spelling of each."""
    ids = unpack_ids(rendered.token_ids)
    return {
        "count": len(ids),
        "max_model_len": limit,
        "tokens": ids,
        "token_strs": [renderer.spelling(i) for i in ids] if spelled else None,
    }


def read_tokens(request: Json) -> tuple[Json, list[int]]:
    """The fields and the ids of a `/detokenize` body; raises RenderRefused."""
    if "tokens" not in request:
        raise missing("body.tokens", request)
    item = Field("list", nullable=False, items="integer")
    fields = read_fields(request, {"model": Field("text"), "tokens": item})
    tokens: list[int] = fields["tokens"]
    for index, token in enumerate(tokens):
        if token < 0:
            words = "Input should be greater than or equal to 0"
            place = f"body.tokens.{index}"
            raise not_valid("greater_than_equal", place, words, token, ge=0)
        if token > MAX_ID:
            raise RenderRefused(f"Token id {token} is out of vocabulary")
    return fields, tokens


def detokenized(renderer: Renderer, tokens: Sequence[int]) -> Json:
    """The answer to `/detokenize`."""
    return {"prompt": renderer.detokenize(tokens, skip_special_tokens=False)}


def models(
    renderer: Renderer, names: Sequence[str], limit: int | None, created: int
) -> Json:
    """The answer to `GET /v1/models`; `created` is in epoch seconds."""
    cards = [
        {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": renderer.profile,
            "root": renderer.model.name,
            "parent": None,
            "max_model_len": limit,
            "permission": [permission(created)],
        }
        for name in names
    ]
    return {"object": "list", "data": cards}


def permission(created: int) -> Json:
    """What vLLM's list of models says of the permission to use each."""
    return {
        "id": f"modelperm-{secrets.token_hex(8)}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
