"""A large answer of TensorRT-LLM's drain cut into smaller ones, to be read by turns.

An event names each token of a prompt, so that an answer may have tens of megabytes. It
is cut where one event ends and the next begins, without decoding it.
"""

from collections.abc import Iterator

PIECE_BYTES = 256 * 1024
_FIELD = b'"event_id"'
_LOOK_BACK = 32
_BETWEEN = (b",", b" ", b"\t", b"\r", b"\n")


def pieces(body: bytes, size: int = PIECE_BYTES) -> Iterator[bytes]:
    """Answers of about `size` bytes that together have all events of `body`, in order.

    One event is never cut. What is not a plain list of events that begin with their id
    is left whole, from there on.
    """
    at = last = body.find(_FIELD)
    if len(body) <= size or not _is_plain(body, at):
        yield body
        return
    start = body.index(b"[") + 1
    while (at := body.find(_FIELD, at + 1)) >= 0:
        before = b"".join(body[max(0, at - _LOOK_BACK) : at].split())
        if not before.endswith(b"},{"):  # a list in the list
            break
        if at - last >= size:
            cut = body.rindex(b"{", 0, at)
            yield _list(body, start, cut)
            start, last = cut, at
    yield _list(body, start, body.rindex(b"]"))


def _is_plain(body: bytes, first: int) -> bool:
    """Does it begin with an event, and end as a list does?"""
    opening = b"".join(body[: max(0, first)].split())
    return opening == b"[{" and body[-_LOOK_BACK:].rstrip().endswith(b"]")


def _list(body: bytes, start: int, end: int) -> bytes:
    """A list of some of its events."""
    while body[end - 1 : end] in _BETWEEN:
        end -= 1
    return b"".join((b"[", memoryview(body)[start:end], b"]"))
