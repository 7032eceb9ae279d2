"""An error as the clients of a route read it: OpenAI's shapes, and Anthropic's.

All have OpenAI's `error` object with its `message`: who reads only that is served on
any route. https://docs.anthropic.com/en/api/errors,
https://platform.openai.com/docs/api-reference/responses-streaming/error
"""

import re

import msgspec

from gateway.errors import GatewayError

MESSAGES = "messages"
RESPONSES = "responses"

_API = re.compile(r"/v1/(messages|responses)(?:/|$)")
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Anthropic's types of errors by status; others are the client's or the server's."""


def api_of(path: str) -> str:
    """Whose shapes the clients of a (decoded) path read; "" for those of chats."""
    found = _API.search(path)
    return found[1] if found else ""


def body_of(error: GatewayError, path: str) -> bytes:
    """The JSON body of an error that is the whole answer."""
    return _anthropics(error) if api_of(path) == MESSAGES else error.body()


def event_body_of(error: GatewayError, path: str, number: int) -> bytes:
    """What the event of an error says, which is the one of that `number`."""
    api = api_of(path)
    if api == MESSAGES:
        return _anthropics(error)
    return _responses(error, number) if api == RESPONSES else error.body()


def _anthropics(error: GatewayError) -> bytes:
    default = "invalid_request_error" if error.status < 500 else "api_error"
    told = {
        "type": _TYPES.get(error.status, default),
        "message": error.message,
        "param": error.param,
        "code": error.code,
    }
    return msgspec.json.encode({"type": "error", "error": told})


def _responses(error: GatewayError, number: int) -> bytes:
    told = {
        "type": "error",
        "code": error.code,
        "message": error.message,
        "param": error.param,
        "sequence_number": number,
    }
    return msgspec.json.encode(told | msgspec.json.decode(error.body()))
