"""Encoding again only what is new: a cache of the segments of a text.

A tokenizer splits a text at its added tokens before it does anything else, so the text
may be cut before such a token and the pieces encoded apart: the ids are the same, if
nothing before the token can change how the token itself is found. `safe_cuts` says
for which tokens that holds. A chat's earlier turns are then looked up, not encoded.
"""

import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from tokenizers import AddedToken

ENTRY_BYTES = 160  # of an entry's place in the table
Encode = Callable[[Sequence[str]], list[bytes]]


def safe_cuts(tokens: Iterable[AddedToken], written: str) -> re.Pattern[str] | None:
    """A pattern that finds where a text may be cut; None if nowhere.

    `tokens` are the tokenizer's added tokens, `written` is the text of the chat
    templates: only tokens that occur in it are worth cutting at.
    """
    every = [token for token in tokens if token.content]
    contents = {token.content for token in every}
    cuts = [
        token.content
        for token in every
        if token.content in written and _is_safe(token, contents)
    ]
    if not cuts:
        return None
    longest_first = sorted(set(cuts), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)))


def _is_safe(token: AddedToken, contents: set[str]) -> bool:
    first = token.content[0]
    if token.lstrip or token.single_word or token.normalized:
        return False
    if first.isspace() or first.isalnum() or first == "_":
        return False
    return not any(_meet(token.content, other) for other in contents)


def _meet(token: str, other: str) -> bool:
    """Whether the two can overlap in a text, or one holds the other."""
    if token == other:
        # A token that overlaps itself ("<a<") is found leftmost first.
        return _overlap(token, token)
    return (
        token in other
        or other in token
        or _overlap(token, other)
        or _overlap(other, token)
    )


def _overlap(left: str, right: str) -> bool:
    """Whether a proper end of `left` is a proper beginning of `right`."""
    return any(left.endswith(right[:n]) for n in range(1, min(len(left), len(right))))


class SegmentCache:
    """Ids of segments, least recently used dropped first, bounded in bytes.

    Safe to use from several threads: they share the entries, not the encoding.
    """

    def __init__(self, cuts: re.Pattern[str], *, limit_bytes: int) -> None:
        self._cuts = cuts
        self._limit = limit_bytes
        self._entries: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def encode(self, text: str, encode: Encode) -> bytes:
        """The ids of `text`; `encode` is called once, with all segments not known."""
        segments = self._segments(text)
        known = self._look_up(segments)
        missing = list(dict.fromkeys(s for s in segments if s not in known))
        if missing:
            new = dict(zip(missing, encode(missing), strict=True))
            self._add(new)
            known.update(new)
        return b"".join(known[segment] for segment in segments)

    def _segments(self, text: str) -> list[str]:
        starts = [match.start() for match in self._cuts.finditer(text)]
        bounds = [0, *starts, len(text)]
        return [text[start:end] for start, end in pairwise(bounds) if start < end]

    def _look_up(self, segments: Sequence[str]) -> dict[str, bytes]:
        known = {}
        with self._lock:
            for segment in segments:
                ids = self._entries.get(segment)
                if ids is not None:
                    self._entries.move_to_end(segment)
                    known[segment] = ids
            self.hits += len(known)
        return known

    def _add(self, new: dict[str, bytes]) -> None:
        with self._lock:
            self.misses += len(new)
            for segment, ids in new.items():
                size = _size(segment, ids)
                if size > self._limit // 4 or segment in self._entries:
                    continue
                self._entries[segment] = ids
                self.bytes += size
            while self.bytes > self._limit:
                segment, ids = self._entries.popitem(last=False)
                self.bytes -= _size(segment, ids)


def _size(segment: str, ids: bytes) -> int:
    return sys.getsizeof(segment) + sys.getsizeof(ids) + ENTRY_BYTES
