"""Errors of those who ask without a key, from elsewhere, or more than they may.

They are part of the tree in `gateway.errors`.
"""

import math
from collections.abc import Iterable

from gateway.errors import GatewayError


class Unauthorized(GatewayError):
    """An own route was asked without its key."""

    status = 401
    type = "authentication_error"
    code: str | None = "unauthorized"


class WrongApiKey(Unauthorized):
    """A client has no key, or a wrong one; OpenAI's type and code."""

    type = "invalid_request_error"
    code: str | None = "invalid_api_key"

    def __init__(self) -> None:
        super().__init__(
            "the API key is missing or wrong: send it as Authorization: Bearer KEY",
            headers=[("WWW-Authenticate", "Bearer")],
        )


class MissingApiKey(WrongApiKey):
    """A client has sent no key; OpenAI has no code for it."""

    code = None


class Forbidden(GatewayError):
    """An own route was asked from where it is not answered."""

    status = 403
    type = "permission_error"
    code = "forbidden"


class RateLimited(GatewayError):
    """A client has used up what its key may, for `wait_s`; OpenAI's type and code.

    `reason` is the limit: "rate" or "inflight".
    """

    status = 429
    type = "requests"
    code = "rate_limit_exceeded"

    def __init__(
        self,
        message: str,
        *,
        wait_s: float,
        reason: str,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        wait = [
            ("Retry-After", str(math.ceil(wait_s))),
            ("retry-after-ms", str(math.ceil(wait_s * 1000))),
        ]
        super().__init__(message, headers=[*wait, *headers])
        self.reason = reason
