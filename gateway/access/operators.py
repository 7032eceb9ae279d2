"""The keys of operators: who may see /gateway, and the one key of a small server.

Forwarded-for headers are never trusted: a peer is who it is connected as.
"""

import base64
import hmac
import ipaddress

from gateway.admin.same_site import is_private_name
from gateway.errors import Forbidden, Unauthorized, WrongApiKey


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
        raise Forbidden("/gateway answers loopback peers only; --admin-key opens it")
    if not (_is_key(authorization, key) or _is_password(authorization, key)):
        raise Unauthorized(
            "the admin key is missing or wrong",
            headers=[("WWW-Authenticate", 'Basic realm="kv-gateway", charset="UTF-8"')],
        )


def check_api_key(authorization: str | None, key: str) -> None:
    """Let holders of the API key in; raises WrongApiKey."""
    if not _is_key(authorization, key):
        raise WrongApiKey


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
