"""What an exchange tells the router and the metrics."""

import math
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway import errors
from gateway.request.account import failure_kind, retry_after_s

NOW = 1_700_000_000.0
SOON = format_datetime(datetime.fromtimestamp(NOW + 7, UTC), usegmt=True).encode()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"20", 20.0),
        (b" 1.5 ", 1.5),
        (b"0", 0.0),
        (SOON, 7.0),
        (b"Wed, 21 Oct 2015 07:28:00 GMT", 1445412480.0 - NOW),
        (b"soon", None),
        (b"", None),
        (b"inf", None),
        (b"nan", None),
        (b"\xff", None),
    ],
)
def test_retry_after(value: bytes, seconds: float | None) -> None:
    """A number of seconds, or a date; anything else is as good as none."""
    assert retry_after_s([(b"Retry-After", value)], lambda: NOW) == seconds


def test_no_retry_after() -> None:
    """Without the header there is none."""
    assert retry_after_s([(b"X", b"20")], lambda: NOW) is None


@given(st.binary(max_size=60))
@example(b"Mon, 99 Foo 0000 99:99:99 +9999")
@example(b"1 Jan 99999999999 00:00")
@example(b", ")
def test_any_retry_after(value: bytes) -> None:
    """Whatever a worker sends is a finite number or nothing."""
    wait = retry_after_s([(b"retry-after", value)], lambda: NOW)
    assert wait is None or math.isfinite(wait)


@given(st.text(alphabet="Mon, 1JanFeb20:+-GMT", max_size=40))
def test_anything_like_a_date(text: str) -> None:
    """Nor does what looks like a date break it."""
    wait = retry_after_s([(b"retry-after", text.encode())], lambda: NOW)
    assert wait is None or math.isfinite(wait)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.ConnectFailed("x"), "connect"),
        (errors.StaleConnection("x", retryable=True), "stale"),
        (errors.UpstreamReset("x"), "reset"),
        (errors.MalformedAnswer("x"), "reset"),
        (errors.UpstreamTimeout("x"), "timeout"),
        (errors.ClientGone("x"), "client"),
        (errors.BadFraming("x"), "refused"),
    ],
)
def test_kinds_of_failure(error: errors.GatewayError, kind: str) -> None:
    """One word each; only connect and reset speak against the worker."""
    assert failure_kind(error) == kind
