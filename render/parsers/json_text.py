"""JSON in an answer: where a value ends, and what it is. Nothing is repaired."""

import json
import re
from typing import Any

SURROGATE = re.compile("[\ud800-\udfff]")


class NotJson(ValueError):
    """A text is not the JSON that was looked for."""


def load(text: str) -> Any:
    """The value of a JSON text; control characters in strings are taken as they are.

    Raises NotJson, also for values that JSON has no way to write (NaN).
    """
    try:
        return json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error


def dump(value: object) -> str:
    """JSON as the engines write arguments: with spaces, and letters as they are."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise NotJson(str(error)) from error
    # A lone surrogate in an escape is JSON, but cannot be sent as UTF-8.
    return json.dumps(value) if SURROGATE.search(text) else text


def _refuse(name: str) -> None:
    raise NotJson(f"{name} is no JSON")
