"""A large answer of TensorRT-LLM's drain cut into smaller ones, to be read by turns.

An event names each token of a prompt, so that an answer may have tens of megabytes. It
is cut where one event ends and the next begins, without decoding it.
"""

from collections.abc import Iterator
from itertools import pairwise

PIECE_BYTES = 256 * 1024
_FIELD = b'"event_id"'
_LOOK_BACK = 32


def pieces(body: bytes, size: int = PIECE_BYTES) -> Iterator[bytes]:
    """Answers of about `size` bytes that together have all events of `body`, in order.

    One event is never cut. Where the answer is not a plain list of events that begin
    with their id, it is left whole.
    """
    cuts = _cuts(body, size) if len(body) > size else []
    if not cuts:
        yield body
        return
    text = memoryview(body)
    edges = [body.index(b"[") + 1, *cuts, body.rindex(b"]")]
    for start, end in pairwise(edges):
        yield b"[%b]" % bytes(text[start:end]).strip(b", \t\r\n")


def _cuts(body: bytes, size: int) -> list[int]:
    """Where events begin, `size` apart or more; none if there are lists in the list."""
    cuts: list[int] = []
    last = at = body.find(_FIELD)
    if body[:at].split() != [b"[{"] and body[:at].split() != [b"[", b"{"]:
        return []
    if not body.rstrip().endswith(b"]"):
        return []
    while (at := body.find(_FIELD, at + 1)) >= 0:
        before = b"".join(body[max(0, at - _LOOK_BACK) : at].split())
        if not before.endswith(b"},{"):
            return []
        if at - last >= size:
            cuts.append(body.rindex(b"{", 0, at))
            last = at
    return cuts
