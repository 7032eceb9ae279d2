"""Answers of our own: JSON, pages and errors, each with the request's id."""

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from gateway.error_shapes import body_of
from gateway.errors import GatewayError, UnlistedModel
from gateway.server import SERVER

JSON = "application/json"


def own(
    body: bytes, identity: bytes, content_type: str = JSON, status: int = 200
) -> web.Response:
    """An answer of the gateway's own; `identity` is the request's id."""
    headers = {
        "Content-Type": content_type,
        "Server": SERVER,
        "X-Request-ID": identity.decode("ascii"),
    }
    return web.Response(body=body, status=status, headers=headers)


def json(value: object, identity: bytes, status: int = 200) -> web.Response:
    """A value as JSON."""
    return own(msgspec.json.encode(value), identity, JSON, status)


def one_model(models: Mapping[str, Any], name: str, identity: bytes) -> web.Response:
    """The entry of that name in a page of `/v1/models`; UnlistedModel."""
    for entry in models["data"]:
        if entry.get("id") == name:
            return json(entry, identity)
    raise UnlistedModel(f"no model {name[:200]!r} is listed here", param="model")


def refusal(
    error: GatewayError, identity: bytes, *, flat: bool = False, path: str = ""
) -> web.Response:
    """An error as its answer: TensorRT-LLM's shape (`flat`), or that of the `path`."""
    body = error.flat_body() if flat else body_of(error, path)
    response = own(body, identity, JSON, error.status)
    response.headers.extend(error.headers)
    if error.close:
        response.force_close()
    return response
