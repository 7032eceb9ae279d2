"""Which shape of an error goes where."""

import msgspec
import pytest

from gateway.access.errors import Unauthorized
from gateway.error_shapes import api_of, body_of, event_body_of
from gateway.errors import (
    BadRequest,
    BodyTooLarge,
    GatewayError,
    InternalError,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    UpstreamReset,
    UpstreamTimeout,
)


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/messages", "messages"),
        ("/v1/messages/count_tokens", "messages"),
        ("/anthropic/v1/messages", "messages"),
        ("/v1/messages2", ""),
        ("/v1/threads/t/messages", ""),
        ("/v1/responses", "responses"),
        ("/v1/responses/resp_1", "responses"),
        ("/v1/chat/completions", ""),
        ("", ""),
    ],
)
def test_api_of_a_path(path: str, api: str) -> None:
    """By its whole segments, below whatever prefix is relayed."""
    assert api_of(path) == api


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadRequest("m"), "invalid_request_error"),
        (Unauthorized("m"), "authentication_error"),
        (NotFound("m"), "not_found_error"),
        (MethodNotAllowed("m"), "invalid_request_error"),
        (BodyTooLarge("m"), "request_too_large"),
        (Overloaded("m"), "overloaded_error"),
        (UpstreamTimeout("m"), "timeout_error"),
        (UpstreamReset("m"), "api_error"),
        (InternalError("m"), "api_error"),
    ],
)
def test_anthropics_shape(error: GatewayError, kind: str) -> None:
    """With one of its types; who knows OpenAI's shape finds the message and code."""
    wanted = {"type": kind, "message": "m", "param": None, "code": error.code}
    body = msgspec.json.decode(body_of(error, "/v1/messages"))
    assert body == {"type": "error", "error": wanted}
    assert msgspec.json.decode(event_body_of(error, "/v1/messages", 3)) == body


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/"])
def test_openais_shape(path: str) -> None:
    """Everywhere else, where it is the whole answer."""
    error = BadRequest("m", param="p")
    assert body_of(error, path) == error.body()


def test_event_of_responses() -> None:
    """What the API's own has, and the `error` at which clients raise."""
    error = UpstreamReset("m")
    assert msgspec.json.decode(event_body_of(error, "/v1/responses", 3)) == {
        "type": "error",
        "code": "upstream_reset",
        "message": "m",
        "param": None,
        "sequence_number": 3,
        "error": msgspec.json.decode(error.body())["error"],
    }
