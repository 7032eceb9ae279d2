"""The keys of operators: who may see /gateway, and the one key of a small server.

Forwarded-for headers open nothing: a peer is who it is connected as. They close: what
a proxy on this machine passes on is from elsewhere.
"""

import base64
import hmac
import ipaddress
from collections.abc import Mapping

from aiohttp import web

from gateway.access.errors import Forbidden, Unauthorized, WrongApiKey
from gateway.admin.same_site import check_same_site, is_private_name

_OF_PROXIES = ("forwarded", "via", "x-forwarded-", "x-real-ip", "x-envoy-")
"""How the headers begin that proxies add."""

_ASK = ("WWW-Authenticate", 'Basic realm="kv-gateway", charset="UTF-8"')


class Operators:
    """What operators may ask, by their keys; without a key /metrics is open."""

    def __init__(self, admin_key: str | None, metrics_key: str | None) -> None:
        self._admin_key = admin_key
        self._metrics_key = metrics_key

    def check_admin(self, request: web.Request) -> None:
        """Raise Forbidden or Unauthorized where it may not see /gateway."""
        peername = request.transport and request.transport.get_extra_info("peername")
        peer = peername[0] if isinstance(peername, tuple) else None
        headers = request.headers
        if is_passed_on(headers):
            peer = None
        authorization = headers.get("Authorization")
        check_admin(peer, authorization, self._admin_key, headers.get("Host"))
        check_same_site(request.method, headers)

    def check_metrics(self, request: web.Request) -> None:
        """Raise Unauthorized where it may not see /metrics."""
        key = self._metrics_key
        if key is not None and not _opens(request.headers.get("Authorization"), key):
            raise Unauthorized("the metrics key is missing or wrong", headers=[_ASK])


def is_passed_on(headers: Mapping[str, str]) -> bool:
    """Whether a proxy says that the request is somebody else's."""
    return any(name.lower().startswith(_OF_PROXIES) for name in headers)


def check_admin(
    peer: str | None,
    authorization: str | None,
    key: str | None,
    host: str | None = None,
) -> None:
    """Let loopback peers and holders of the admin key in.

    `peer` is the address of the connection, `authorization` and `host` the headers. The
    key may also come as the password of any user, as browsers send it. Raises
    Forbidden where no key is configured, Unauthorized where it is not the key.
    """
    if peer is not None and _is_loopback(peer) and is_private_name(host):
        return
    if key is None:
        raise Forbidden(
            "/gateway answers loopback peers only, and not through a proxy; "
            "--admin-key opens it"
        )
    if not _opens(authorization, key):
        raise Unauthorized("the admin key is missing or wrong", headers=[_ASK])


def check_api_key(authorization: str | None, key: str) -> None:
    """Let holders of the API key in; raises WrongApiKey."""
    if not _is_key(authorization, key):
        raise WrongApiKey


def _opens(authorization: str | None, key: str) -> bool:
    return _is_key(authorization, key) or _is_password(authorization, key)


def _is_key(authorization: str | None, key: str) -> bool:
    """Whether a header carries that bearer key; how long it takes tells nothing."""
    scheme, _, given = (authorization or "").partition(" ")
    # Headers may hold any bytes: aiohttp keeps odd ones as surrogates.
    sent, wanted = (t.encode("utf-8", "surrogateescape") for t in (given.strip(), key))
    return hmac.compare_digest(sent, wanted) and scheme.lower() == "bearer"


def _is_password(authorization: str | None, key: str) -> bool:
    scheme, _, given = (authorization or "").partition(" ")
    try:
        pair = base64.b64decode(given.strip(), validate=True)
    except ValueError:
        return False
    password = pair.partition(b":")[2]
    wanted = key.encode("utf-8", "surrogateescape")
    return hmac.compare_digest(password, wanted) and scheme.lower() == "basic"


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
