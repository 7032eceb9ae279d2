"""The error tree: statuses, codes, and a body that stays small and says nothing odd."""

import msgspec
import pytest

from gateway import errors


def tree(base: type[errors.GatewayError]) -> list[type[errors.GatewayError]]:
    """`base` and all errors below it."""
    return [base] + [e for below in base.__subclasses__() for e in tree(below)]


def test_every_error_has_a_code_of_its_own() -> None:
    """Clients tell errors apart by code; only the two roots of 500 share one."""
    kinds = [e for e in tree(errors.GatewayError) if e is not errors.InternalError]
    codes = [e.code for e in kinds]
    assert len(codes) == len(set(codes))
    assert all(400 <= e.status < 600 for e in kinds)


def test_docstring_draws_the_tree() -> None:
    """With every class in it."""
    assert errors.__doc__ is not None
    for kind in tree(errors.GatewayError):
        if kind is not errors.BadFraming:
            assert kind.__name__ in errors.__doc__


def test_body_is_openais_shape() -> None:
    """All four fields, in a nested object."""
    body = errors.BadRequest("no prompt", param="prompt").body()
    assert msgspec.json.decode(body) == {
        "error": {
            "message": "no prompt",
            "type": "invalid_request_error",
            "param": "prompt",
            "code": "bad_request",
        }
    }


def test_flat_body_is_tensorrt_llms_shape() -> None:
    """Nothing is nested; the code is the status, the type a name that ends alike."""
    body = errors.BodyTooLarge("too much").flat_body()
    assert msgspec.json.decode(body) == {
        "object": "error",
        "message": "too much",
        "type": "BodyTooLargeError",
        "param": None,
        "code": 413,
    }
    internal = msgspec.json.decode(errors.InternalError("x").flat_body())
    assert internal["type"] == "InternalError"


@pytest.mark.parametrize("text", ["x" * 10**6, "\U0001f600" * 10**5, "\x00" * 10**5])
def test_body_is_small(text: str) -> None:
    """Below 4 KB, whatever a message was made of."""
    assert len(errors.BadRequest(text).body()) <= 4096


def test_no_worker_says_when_to_come_back() -> None:
    """Clients honour Retry-After."""
    error = errors.NoWorker("none")
    assert error.status == 503
    assert error.headers == (("Retry-After", "1"),)


def test_a_504_that_a_worker_was_kept_busy_for_is_not_to_be_tried_again() -> None:
    """One that no worker was asked for may go through at less load."""
    late = [kind for kind in _kinds(errors.GatewayError) if kind.status == 504]
    told = {kind.code: kind("late").headers for kind in late}
    no_more = (("x-should-retry", "false"),)
    assert told == {"upstream_timeout": no_more, "render_timeout": ()}


def _kinds(kind: type[errors.GatewayError]) -> list[type[errors.GatewayError]]:
    """It and all below it."""
    return [kind, *(one for below in kind.__subclasses__() for one in _kinds(below))]


def test_only_what_cannot_have_acted_is_retryable() -> None:
    """Facts for the handler's decision."""
    assert errors.ConnectFailed("x").retryable
    assert errors.StaleConnection("x", retryable=True).retryable
    assert not errors.StaleConnection("x", retryable=False).retryable
    assert not errors.UpstreamReset("x").retryable
    assert not errors.MalformedAnswer("x").retryable
