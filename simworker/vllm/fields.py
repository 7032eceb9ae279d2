"""Fields of a request body, taken as pydantic takes them: lax where it is lax."""

from collections.abc import Mapping

from simworker.errors import not_valid
from simworker.request import Body
from simworker.vllm.errors import bad_value

_TRUE = frozenset({"true", "t", "yes", "y", "on", "1"})


def text(body: Body, name: str) -> str | None:
    """A string. Raises ApiError."""
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    raise not_valid(
        "string_type", f"body.{name}", "Input should be a valid string", value
    )


def integer(body: Body, name: str) -> int | None:
    """A whole number, also as a float or a string of digits. Raises ApiError."""
    value = body.get(name)
    if value is None or type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        return int(value)
    message = "Input should be a valid integer"
    raise not_valid("int_type", f"body.{name}", message, value)


def number(body: Body, name: str) -> float | None:
    """A number, also as a string. Raises ApiError."""
    value = body.get(name)
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        message = "Input should be a valid number"
        raise not_valid("float_type", f"body.{name}", message, value) from None


def flag(body: Mapping[str, object], name: str) -> bool:
    """A boolean, also as 1 or "true"; anything else is False."""
    value = body.get(name)
    return value is True or str(value).lower() in _TRUE


def record(body: Body, name: str) -> Body:
    """An object; {} if there is none. Raises ApiError."""
    value = body.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    message = "Input should be a valid dictionary"
    raise not_valid("dict_type", f"body.{name}", message, value)


def texts(body: Body, name: str) -> tuple[str, ...]:
    """A string or a list of strings. Raises ApiError."""
    value = body.get(name)
    if value is None or isinstance(value, str):
        return (value,) if value else ()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(filter(None, value))
    raise not_valid(
        "string_type", f"body.{name}", "Input should be a valid string", value
    )


def ids(body: Body, name: str) -> tuple[int, ...]:
    """A list of token ids. Raises ApiError."""
    value = body.get(name) or []
    if isinstance(value, list) and all(map(is_id, value)):
        return tuple(value)
    raise not_valid("list_type", f"body.{name}", "Input should be a valid list", value)


def forwarded_ids(transfer: Mapping[str, object]) -> list[int] | None:
    """Token ids that come with the request and replace rendering (vLLM >= 0.32)."""
    value = transfer.get("prompt_token_ids")
    if value is None:
        return None
    if isinstance(value, list) and value and all(map(is_id, value)):
        return value
    message = (
        "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of "
        "non-negative integers."
    )
    raise bad_value(message, "kv_transfer_params.prompt_token_ids")


def is_id(value: object) -> bool:
    """Whether it can be a token id."""
    return type(value) is int and value >= 0
