"""The error tree of the gateway, and OpenAI's error shape.

    GatewayError
    |- BadRequest 400              the client's head or, on own routes, content
    |  |- BadFraming                 its body is cut short or badly framed
    |- NotForTokens 400            cannot be rendered, and workers take ids only
    |- Unauthorized 401            own routes without the admin key
    |  |- WrongApiKey                 a client without a key, or with a wrong one
    |     |- MissingApiKey
    |- Forbidden 403               own routes from elsewhere
    |- NotFound 404                no such route, or one that is closed
    |  |- UnlistedModel               no model of that name
    |- MethodNotAllowed 405
    |- Conflict 409                what is to be added is there
    |- BodyTooLarge 413
    |- HeadTooLarge 431
    |- ExpectationFailed 417       an ``Expect`` other than 100-continue
    |- RateLimited 429             a client has used up what its key may
    |- InternalError 500           a bug of the gateway
    |- NoWorker 503                nobody to send to
    |- Overloaded 503              as much is taken on as may be
    |- GoingAway 503               the time of open requests is over
    |- RenderBusy 503              a render route with too much to do
    |- RenderTimeout 504           a rendering that took too long
    |- UpstreamFailed 502          the worker broke the exchange
    |  |- ConnectFailed              no connection; nothing was sent
    |  |- StaleConnection            a reused connection had been closed meanwhile
    |  |- UpstreamReset              ended or reset before or during the answer
    |  |- MalformedAnswer            what came was not HTTP, or over a limit
    |- RefusedMeanwhile 502        it took some prompts of a request, not others
    |- UpstreamTimeout 504         the worker was silent for too long
    |- ClientGone 499              the client left; never sent, only counted
    ConfigError                    a mistake on the command line: one line, status 2

Those of keys and their limits are in `gateway.access.errors`, `NotForTokens` and
`RefusedMeanwhile` are in `gateway.tokens`. A message never repeats
what the client sent. Answers of workers are not errors: they are relayed as they are,
whatever their status.
"""

from collections.abc import Iterable

import msgspec

_MAX_MESSAGE = 600  # characters, of up to 6 bytes each in JSON: a body below 4 KB
_COME_AGAIN = (("Retry-After", "1"),)


class GatewayError(Exception):
    """A failure the gateway answers itself: ``status`` and OpenAI's fields.

    ``headers`` are added to the answer, ``steering`` too: whether and when SDKs try
    again. ``close`` says that the client's connection cannot be used again, as the rest
    of its bytes has no known meaning.
    """

    status: int = 500
    type: str = "server_error"
    code: str | None = "internal_error"
    close: bool = False
    steering: tuple[tuple[str, str], ...] = ()

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.message = message[:_MAX_MESSAGE]
        self.param = param
        self.headers = (*self.steering, *headers)

    def body(self) -> bytes:
        """The JSON body: ``{"error": {"message", "type", "param", "code"}}``."""
        return msgspec.json.encode(
            {
                "error": {
                    "message": self.message,
                    "type": self.type,
                    "param": self.param,
                    "code": self.code,
                }
            }
        )

    def flat_body(self) -> bytes:
        """The JSON body in TensorRT-LLM's shape: nothing is nested."""
        return msgspec.json.encode(
            {
                "object": "error",
                "message": self.message,
                "type": type(self).__name__.removesuffix("Error") + "Error",
                "param": self.param,
                "code": self.status,
            }
        )


class BadRequest(GatewayError):
    """The client's request cannot be understood."""

    status = 400
    type = "invalid_request_error"
    code = "bad_request"


class BadFraming(BadRequest):
    """The client's body is cut short or badly framed; its connection is lost."""

    code = "bad_framing"
    close = True


class NotFound(GatewayError):
    """No such route, or one that is closed."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"


class UnlistedModel(NotFound):
    """No model of that name is listed here."""

    code = "model_not_found"


class MethodNotAllowed(GatewayError):
    """The route exists, but not for this method."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class Conflict(GatewayError):
    """What is to be added is there already."""

    status = 409
    type = "invalid_request_error"
    code = "conflict"


class BodyTooLarge(GatewayError):
    """The client's body is above the limit; the rest of it is not read."""

    status = 413
    type = "invalid_request_error"
    code = "body_too_large"
    close = True


class HeadTooLarge(GatewayError):
    """The client's request line and headers are above the limit."""

    status = 431
    type = "invalid_request_error"
    code = "head_too_large"
    close = True


class ExpectationFailed(GatewayError):
    """The client expects something other than ``100-continue``."""

    status = 417
    type = "invalid_request_error"
    code = "expectation_failed"
    close = True


class InternalError(GatewayError):
    """A bug of the gateway."""


class NoWorker(GatewayError):
    """No worker can take the request now. Answered with ``Retry-After``."""

    status = 503
    type = "service_unavailable"
    code = "no_worker"
    steering = _COME_AGAIN


class Overloaded(GatewayError):
    """The gateway, or all workers, have as much as they may. With ``Retry-After``."""

    status = 503
    type = "service_unavailable"
    code = "overloaded"
    steering = _COME_AGAIN


class GoingAway(GatewayError):
    """The gateway ends, and the time that open requests had is over."""

    status = 503
    type = "service_unavailable"
    code = "going_away"
    close = True


class RenderBusy(GatewayError):
    """More renderings wait than may. Answered with ``Retry-After``."""

    status = 503
    type = "service_unavailable"
    code = "render_busy"
    steering = _COME_AGAIN


class RenderTimeout(GatewayError):
    """A rendering took longer than a client should wait; another time it may not."""

    status = 504
    type = "render_timeout"
    code = "render_timeout"


class UpstreamFailed(GatewayError):
    """The worker broke the exchange.

    ``retryable`` is a fact, not a decision: the worker cannot have acted on the
    request and the request can be sent again.
    """

    status = 502
    type = "upstream_error"
    code = "upstream_failed"
    retryable: bool = False


class ConnectFailed(UpstreamFailed):
    """No connection could be made; nothing was sent.

    `timed_out`: that took all the time there was for it; else it was refused at once.
    """

    code = "upstream_connect_failed"
    retryable = True

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class StaleConnection(UpstreamFailed):
    """A reused connection ended at once, without a byte of answer.

    The worker had closed it while the request was on its way. Retryable unless the
    body came from a stream that cannot be read again.
    """

    code = "upstream_stale_connection"

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class UpstreamReset(UpstreamFailed):
    """The connection ended before the answer was complete."""

    code = "upstream_reset"


class MalformedAnswer(UpstreamFailed):
    """What the worker sent is not HTTP, or is over a limit."""

    code = "upstream_malformed"


class UpstreamTimeout(GatewayError):
    """The worker was silent for too long; so would be the next, most likely."""

    status = 504
    type = "upstream_timeout"
    code = "upstream_timeout"
    steering = (("x-should-retry", "false"),)


class ClientGone(GatewayError):
    """The client left, or takes nothing any more. Counted, never sent."""

    status = 499
    type = "client_gone"
    code = "client_gone"
    close = True


class ConfigError(Exception):
    """An option or its value is wrong, or what it names is not there.

    Its text is one line for the user, naming what and where.
    """
