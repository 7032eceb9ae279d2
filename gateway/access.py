"""Who may ask what: the keys, and which paths are proxied at all.

Forwarded-for headers are never trusted: a peer is who it is connected as.
"""

import base64
import hmac
import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import unquote

from gateway.admin.same_site import is_private_name
from gateway.errors import Forbidden, Unauthorized, WrongApiKey

PROXIED = frozenset(
    {
        "/tokenize",
        "/detokenize",
        "/embeddings",
        "/pooling",
        "/classify",
        "/score",
        "/rerank",
        "/v2/rerank",
        "/v2/embed",
        "/generate",
        "/inference/v1/generate",
    }
)
"""Inference paths outside /v1 that clients of some engine use."""

CLOSED = frozenset(
    {
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
    }
)
"""Control routes of workers that live under /v1."""


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def asked_path(target: bytes) -> str:
    """The decoded path of a request's target, dot segments and all."""
    path = re.split(rb"[?#]", target, maxsplit=1)[0]
    return unquote(path.decode("latin-1"))


def is_proxied(path: str, further_prefixes: Iterable[str]) -> bool:
    """Whether a request for this (decoded) path may reach a worker.

    Dot segments and control characters never do: what the worker makes of them is not
    for us to guess (a line end after a path still matches it in Starlette).
    """
    if _CONTROL.search(path) or "//" in path:
        return False
    loosest = _as_read_loosely(path)
    if any(segment in (".", "..") for segment in loosest.split("/")):
        return False
    if any(path == p or path.startswith(p.rstrip("/") + "/") for p in further_prefixes):
        return True
    if loosest.rstrip("/") in CLOSED:
        return False
    return path.startswith("/v1/") or path in PROXIED


def _as_read_loosely(path: str) -> str:
    """The path as the least strict of all readers might take it.

    One that decodes twice, takes backslashes for slashes, leaves out parameters and
    spaces, and does not look at the case.
    """
    path = re.split("[?#]", unquote(unquote(path)).replace("\\", "/").lower())[0]
    return "/".join(part.partition(";")[0].strip() for part in path.split("/"))


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
