"""What stands in for the blocks of a prompt that is not rendered: its raw content.

Its bytes are cut into pieces that are hashed like blocks, so that equal beginnings
still meet.
"""

import re
from collections.abc import Iterable

from gateway.request.peek import Peeked
from kvindex.blocks import Namespace, chain
from router.request import CONTENT_PIECE_BYTES, CONTENT_PIECE_TOKENS, Rendering
from router.worker import CONTENT_PIECES

CONTENT_LIMIT = CONTENT_PIECES // 2 * CONTENT_PIECE_BYTES
"""Bytes of one body that are cut: it pushes out no more than half of all the others,
and to hash and to note it takes some three milliseconds together."""
BYTES_PER_TOKEN = CONTENT_PIECE_BYTES // CONTENT_PIECE_TOKENS

_BILLING_LINE = re.compile(rb'x-anthropic-billing-header[^"\\]*')
_BILLED_WITHIN = 512
"""Bytes of a part in which the line is looked for."""


def content_of(peeked: Peeked, namespace: Namespace) -> Rendering | None:
    """Pseudo blocks over what a body shows of its prompt; None if it shows nothing."""
    if not peeked.content:
        return None
    *before, last = (memoryview(raw) for raw in peeked.content)
    # The closing bracket or quote is where the next turn goes on: left out.
    parts = [*before, last[:-1]]
    size = sum(len(part) for part in parts)
    raw = _beginning(parts)
    return Rendering(
        profile="content",
        block_size=CONTENT_PIECE_TOKENS,
        hashes=chain(raw, CONTENT_PIECE_TOKENS, namespace.root()),
        token_count=max(1, size // BYTES_PER_TOKEN),
        estimated=True,
    )


def _beginning(parts: Iterable[memoryview]) -> bytes:
    """As much of the parts as is cut. A body may have thousands."""
    raw = bytearray()
    for part in parts:
        if len(raw) >= CONTENT_LIMIT:
            break
        for piece in _unbilled(part[:CONTENT_LIMIT]):
            raw += piece
    return bytes(raw[:CONTENT_LIMIT])


def _unbilled(part: memoryview) -> tuple[memoryview, ...]:
    """Without the line that Claude Code begins with, new in each request.

    vLLM takes it out, too, so that what follows is found in its cache.
    """
    line = _BILLING_LINE.search(part[:_BILLED_WITHIN])
    return (part,) if line is None else (part[: line.start()], part[line.end() :])
