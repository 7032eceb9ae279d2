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
        ("v1", "load_lora_adapter"),
        ("v1", "unload_lora_adapter"),
    }
)
"""Control routes of workers that live under /v1, by their segments."""

MOST_DECODINGS = 4
"""A path that is still encoded after so many is nobody's in good faith."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_AFTER = re.compile("[;?#]")


def asked_path(target: bytes) -> str:
    """The decoded path of a request's target, dot segments and all."""
    path = re.split(rb"[?#]", target, maxsplit=1)[0]
    return unquote(path.decode("latin-1"))


def is_proxied(path: str, further_prefixes: Iterable[str]) -> bool:
    """Whether a request for this (decoded) path may reach a worker.

    Dot segments and control characters never do, however often they are encoded: what
    the worker makes of them is not for us to guess (a line end after a path still
    matches it in Starlette).
    """
    if "//" in path:
        return False
    readings = _decoded(path)
    loosest = [_loose_segments(reading) for reading in readings]
    if len(readings) > MOST_DECODINGS or any(map(_CONTROL.search, readings)):
        return False
    if any(segment in (".", "..") for segments in loosest for segment in segments):
        return False
    if any(path == p or path.startswith(p.rstrip("/") + "/") for p in further_prefixes):
        return True
    if any(segments[:2] in CLOSED for segments in loosest):
        return False
    return path.startswith("/v1/") or path in PROXIED


def _decoded(path: str) -> list[str]:
    """The path, and what is left of it each time that somebody decodes it again."""
    readings = [path]
    while len(readings) <= MOST_DECODINGS:
        again = unquote(readings[-1])
        if again == readings[-1]:
            break
        readings.append(again)
    return readings


def _loose_segments(path: str) -> tuple[str, ...]:
    """The segments of a path as the least strict of all readers might take them.

    One that takes backslashes for slashes, leaves out parameters, spaces and what is
    empty, and does not look at the case. Whether a ``?`` or ``#`` that was encoded ends
    the path is open: it ends its segment, and those after it are looked at, too.
    """
    parts = path.replace("\\", "/").lower().split("/")
    segments = (_AFTER.split(part, maxsplit=1)[0].strip() for part in parts)
    return tuple(segment for segment in segments if segment)
