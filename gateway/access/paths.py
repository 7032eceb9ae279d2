"""Which paths are proxied at all: what a client may ask of a worker."""

import re
from collections.abc import Iterable
from urllib.parse import unquote

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
