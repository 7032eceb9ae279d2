"""What pages of other origins may ask of the routes for clients, and read (CORS).

Nothing without `--allowed-origins`. No cookie is ever asked for: a page brings its key
in a header, as any client does. Routes of operators are not spoken of here, see
admin/same_site.py. https://fetch.spec.whatwg.org/#http-cors-protocol
"""

import re
from itertools import chain

from aiohttp import web

from gateway.access.paths import asked_path, is_proxied
from gateway.request.headers import RawHeaders, target
from gateway.server import SERVER
from gateway.settings.config import Config

ANY = "*"
MAX_AGE_S = 600
"""How long a browser may take a preflight's answer for the next one's, too."""

EXPOSED = (
    "X-Request-ID, Retry-After, retry-after-ms, x-should-retry, X-KV-Gateway-Decision, "
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
    "x-ratelimit-reset-requests"
)
"""What a page may read besides the body: what the gateway itself tells clients."""

_TOLD: web.RequestKey[RawHeaders] = web.RequestKey("cross_origin", tuple)
_OF_CORS = b"access-control-"
_NAMES = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z, ]{1,4096}")


class CrossOrigin:
    """Notes for each request what its answer tells browsers; answers preflights."""

    def __init__(self, config: Config) -> None:
        self._allowed = frozenset(chain.from_iterable(config.allowed_origins))
        self._proxy_path = config.proxy_path

    @property
    def on(self) -> bool:
        """Whether any other origin is allowed."""
        return bool(self._allowed)

    def answer(self, request: web.Request, identity: bytes) -> web.Response | None:
        """The answer to an allowed preflight, which brings no key; None: no such."""
        path = asked_path(target(request.raw_path))
        if not self.on or not is_proxied(path, self._proxy_path):
            return None
        origin = self._allowed_origin(request)
        vary = [] if ANY in self._allowed else [(b"Vary", b"Origin")]
        if origin is None:
            request[_TOLD] = vary
            return None
        allow = (b"Access-Control-Allow-Origin", origin.encode("ascii"))
        method = request.headers.get("Access-Control-Request-Method")
        if request.method == "OPTIONS" and method is not None:
            request[_TOLD] = [allow, *vary]
            return _preflight(request, method, identity)
        exposed = (b"Access-Control-Expose-Headers", EXPOSED.encode("ascii"))
        request[_TOLD] = [allow, exposed, *vary]
        return None

    def _allowed_origin(self, request: web.Request) -> str | None:
        """What is said to be allowed: any, or the origin that asks; None: not it."""
        if ANY in self._allowed:
            return ANY
        origin = request.headers.get("Origin")
        return origin if origin in self._allowed else None


def _preflight(request: web.Request, method: str, identity: bytes) -> web.Response:
    """Whatever method and headers are asked for: they are the worker's to judge."""
    answer = {
        "Server": SERVER,
        "X-Request-ID": identity.decode("ascii"),
        "Access-Control-Max-Age": str(MAX_AGE_S),
        "Vary": "Access-Control-Request-Method, Access-Control-Request-Headers",
    }
    names = request.headers.get("Access-Control-Request-Headers", "")
    for name, asked in (("Methods", method), ("Headers", names)):
        if _NAMES.fullmatch(asked):
            answer[f"Access-Control-Allow-{name}"] = asked
    return web.Response(status=204, headers=answer)


async def tell(request: web.Request, response: web.StreamResponse) -> None:
    """Add what was noted to an answer of our own, before it is sent."""
    for name, value in request.get(_TOLD, ()):
        response.headers.add(name.decode("ascii"), value.decode("ascii"))


def told_for(request: web.Request, headers: RawHeaders) -> RawHeaders:
    """A worker's headers, with what was noted in place of what it says of origins."""
    told = request.get(_TOLD)
    if told is None:
        return headers
    own = [pair for pair in headers if not pair[0].lower().startswith(_OF_CORS)]
    return [*own, *told]
