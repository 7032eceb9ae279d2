"""The bodies of the derender endpoints, read and checked before anything is decoded.

Fields, defaults, limits and words are those of vLLM 0.32.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from render import fields as tables
from render.body import Json
from render.checks import check_chat, check_completion
from render.fields import INT64, Field, read_fields
from render.message_checks import check_messages, check_tools
from render.refused import RenderRefused, not_valid

MAX_CHOICES = 16_384
MAX_LOGPROBS = 20  # of one position
MAX_ID = 2**32 - 1

GENERATED: Mapping[str, Field] = {
    "request_id": Field("text", nullable=False),
    "model": Field("text"),
    "output_mode": Field("text", "tokens", False, choices=("tokens",)),
    "kv_transfer_params": Field("object"),
    "ec_transfer_params": Field("object"),
    "metrics": Field("any"),
    "usage": Field("object"),
    "prompt_logprobs": Field("list"),
    "prompt_token_ids": Field("list"),
    "choices": Field("list", nullable=False, items="object"),
}
PASSED_ON = ("kv_transfer_params", "metrics", "prompt_logprobs", "usage")
WHOLE_NUMBER = Field("integer", low=INT64[0], high=INT64[1])
USAGE: Mapping[str, Field] = {
    "prompt_tokens": WHOLE_NUMBER,
    "completion_tokens": WHOLE_NUMBER,
    "prompt_tokens_details": Field("object"),
}
CHOICE: Mapping[str, Field] = {
    "index": Field("integer", nullable=False, low=INT64[0], high=INT64[1]),
    "finish_reason": Field("text", "stop"),
    "stop_reason": Field("any"),
    "token_ids": Field("list"),
    "logprobs": Field("object"),
}
STREAM_CHOICE = {**CHOICE, "finish_reason": Field("text")}
LOGPROB: Mapping[str, Field] = {
    "token_id": Field("integer", nullable=False),
    "logprob": Field("number", nullable=False),
}


class Bounds:
    """What an answer of one model may hold; `limit` is its context (None: any)."""

    def __init__(self, *, limit: int | None, vocabulary: int) -> None:
        self.limit = limit
        self.vocabulary = vocabulary

    def check_length(self, count: int, what: str) -> None:
        """Raises RenderRefused for more than the context."""
        if self.limit is not None and count > self.limit:
            raise RenderRefused(f"{what} exceeds max_model_len ({self.limit}).")

    def check_prompt(self, ids: Sequence[int] | None) -> None:
        """Raises RenderRefused for a prompt that does not fit."""
        if ids is not None:
            self.check_length(len(ids), f"prompt_token_ids length ({len(ids)})")

    def check_responses(self, responses: Sequence[Json]) -> None:
        """Raises RenderRefused for answers that are too large."""
        if len(responses) > MAX_CHOICES:
            raise RenderRefused(
                f"generate_responses count ({len(responses)}) exceeds server maximum "
                f"({MAX_CHOICES}). Set VLLM_MAX_N_SEQUENCES to increase this limit."
            )
        for response in responses:
            self._check_response(response)

    def _check_response(self, response: Json) -> None:
        count, name = len(response["choices"]), response["request_id"]
        if count > MAX_CHOICES:
            raise RenderRefused(
                f"choices count ({count}) in response '{name}' exceeds server maximum "
                f"({MAX_CHOICES})."
            )
        for choice in response["choices"]:
            self._check_choice(choice)
        logprobs = response["prompt_logprobs"] or ()
        self.check_length(
            len(logprobs),
            f"prompt_logprobs length ({len(logprobs)}) in response '{name}'",
        )
        self.check_prompt(response["prompt_token_ids"])

    def _check_choice(self, choice: Json) -> None:
        index, ids = choice["index"], choice["token_ids"] or ()
        self.check_length(len(ids), f"token_ids length ({len(ids)}) in choice {index}")
        content = (choice["logprobs"] or {}).get("content") or ()
        self.check_length(
            len(content), f"logprobs.content length ({len(content)}) in choice {index}"
        )
        for entry in content:
            top = entry["top_logprobs"]
            if len(top) > MAX_LOGPROBS:
                raise RenderRefused(
                    f"top_logprobs count ({len(top)}) in choice {index} exceeds "
                    f"max_logprobs ({MAX_LOGPROBS})."
                )

    def check_ids(self, ids: Sequence[int], place: str) -> None:
        """Raises RenderRefused for an id out of the vocabulary."""
        if not ids or (min(ids) >= 0 and max(ids) < self.vocabulary):
            return
        index = next(i for i, one in enumerate(ids) if not 0 <= one < self.vocabulary)
        where = f"{place}.{index}"
        raise RenderRefused(
            f"Token id {ids[index]} at {where} is out of vocabulary", param=where
        )

    def check_decodable(self, response: Json, place: str, where: str = "") -> None:
        """Raises RenderRefused for empty ids, and for ids out of the vocabulary."""
        for number, choice in enumerate(response["choices"]):
            if not choice["token_ids"]:
                raise RenderRefused(
                    f"choice {choice['index']}{where} has empty or null token_ids"
                )
            self.check_choice_ids(choice, f"{place}.choices.{number}")

    def check_choice_ids(self, choice: Json, place: str) -> None:
        """Raises RenderRefused for ids of a choice out of the vocabulary."""
        self.check_ids(choice["token_ids"] or (), f"{place}.token_ids")
        content = (choice["logprobs"] or {}).get("content") or ()
        self.check_ids(
            [entry["token_id"] for entry in content], f"{place}.logprobs.content"
        )
        for entry in content:
            top = [one["token_id"] for one in entry["top_logprobs"]]
            self.check_ids(top, f"{place}.logprobs.content.top_logprobs")


def read_generated(value: object, where: str, *, stream: bool = False) -> Json:
    """A generate response or a chunk of one; raises RenderRefused."""
    if not isinstance(value, dict):
        raise _no_object(value, where)
    if "choices" not in value:
        raise not_valid("missing", f"{where}.choices", "Field required", value)
    fields = read_fields(value, GENERATED, where)
    if fields["request_id"] is None:
        fields["request_id"] = secrets.token_hex(16)
    if fields["usage"] is not None:
        fields["usage"] = read_fields(fields["usage"], USAGE, f"{where}.usage")
    _check_passable(fields, where)
    fields["prompt_token_ids"] = read_ids(
        fields["prompt_token_ids"], f"{where}.prompt_token_ids"
    )
    table = STREAM_CHOICE if stream else CHOICE
    fields["choices"] = [
        _choice(choice, table, f"{where}.choices.{number}")
        for number, choice in enumerate(fields["choices"])
    ]
    return fields


def _check_passable(fields: Json, where: str) -> None:
    """Raises RenderRefused for what is passed on and JSON here cannot write again."""
    for name in PASSED_ON:
        try:
            msgspec.json.encode(fields[name])
        except (msgspec.MsgspecError, OverflowError, RecursionError) as error:
            place = f"{where}.{name}"
            raise RenderRefused(f"{place}: {error}", param=place) from error


def _choice(value: Json, table: Mapping[str, Field], where: str) -> Json:
    if "index" not in value:
        raise not_valid("missing", f"{where}.index", "Field required", value)
    choice = read_fields(value, table, where)
    reason = choice["stop_reason"]
    if type(reason) not in (int, str, type(None)) or (
        isinstance(reason, int) and not INT64[0] <= reason <= INT64[1]
    ):
        message = "Input should be a valid integer or string"
        raise not_valid("int_type", f"{where}.stop_reason", message, "")
    choice["token_ids"] = read_ids(choice["token_ids"], f"{where}.token_ids")
    if choice["logprobs"] is not None:
        choice["logprobs"] = _logprobs(choice["logprobs"], f"{where}.logprobs")
    return choice


def _logprobs(value: Json, where: str) -> Json:
    content = read_fields(value, {"content": Field("list", items="object")}, where)
    if content["content"] is None:
        return content
    top_table = {"top_logprobs": Field("list", (), nullable=False, items="object")}
    entries = []
    for number, entry in enumerate(content["content"]):
        place = f"{where}.content.{number}"
        top = read_fields(entry, top_table, place)["top_logprobs"]
        entries.append(
            {
                **_logprob(entry, place),
                "top_logprobs": [
                    _logprob(one, f"{place}.top_logprobs.{i}")
                    for i, one in enumerate(top)
                ],
            }
        )
    return {"content": entries}


def _logprob(value: Json, where: str) -> Json:
    for name in LOGPROB:
        if name not in value:
            raise not_valid("missing", f"{where}.{name}", "Field required", value)
    return read_fields(value, LOGPROB, where)


def read_ids(value: object, where: str) -> list[int] | None:
    """A list of ids that are not negative; raises RenderRefused."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise not_valid("list_type", where, "Input should be a valid list", value)
    if {*map(type, value)} - {int}:
        index = next(i for i, one in enumerate(value) if type(one) is not int)
        message = "Input should be a valid integer"
        raise not_valid("int_type", f"{where}.{index}", message, value[index])
    if value and (min(value) < 0 or max(value) > MAX_ID):
        index = next(i for i, one in enumerate(value) if not 0 <= one <= MAX_ID)
        message = "Input should be greater than or equal to 0"
        place = f"{where}.{index}"
        raise not_valid("greater_than_equal", place, message, value[index], ge=0)
    return value


def read_chat_request(value: object) -> Json | None:
    """The chat request that was rendered, checked again; raises RenderRefused."""
    if value is None:
        return None
    where = "body.chat_request"
    if not isinstance(value, dict):
        raise _no_object(value, where)
    check_chat(value)
    check_messages(value)
    check_tools(value.get("tools"))
    fields = read_fields(value, tables.CHAT, where)
    return {**value, **fields}


def read_completion_request(value: object) -> Json | None:
    """The completion request that was rendered; raises RenderRefused."""
    if value is None:
        return None
    where = "body.completion_request"
    if not isinstance(value, dict):
        raise _no_object(value, where)
    check_completion(value)
    return {**value, **read_fields(value, tables.COMPLETION, where)}


def _no_object(value: Any, where: str) -> RenderRefused:
    message = "Input should be a valid dictionary or object to extract fields from"
    return not_valid("model_attributes_type", where, message, value)
