"""The libraries that turn text into ids: tokenizers and fastokens.

They give the same ids. Both let other threads run while they encode. Threads are the
caller's: the two libraries' own parallelism is switched off below, as several requests
are encoded at once and a pool of all cores would starve the rest.
"""

import logging
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import Protocol

# Read by the libraries when they are first used; what the user has set is kept.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAYON_NUM_THREADS", "1")

from tokenizers import AddedToken, Tokenizer

try:
    import fastokens
except ImportError:  # there is none for this platform
    fastokens = None

from kvindex.blocks import pack_ids
from render.rust import RustFailed, rust
from render.segments import SegmentCache, safe_cuts
from render.selftest import differing_probe

log = logging.getLogger(__name__)

SLICE = 65_536
"""Ids that are handled in one go: about a millisecond."""


class Library(Protocol):
    """Encodes without adding special tokens."""

    name: str
    is_reference: bool  # whether it is the reference itself, with no cache before it

    def encode(self, text: str) -> bytes:
        """The ids of one text; may raise anything."""
        ...


class Tokenizers:
    """Hugging Face's tokenizers, behind our segment cache."""

    name = "tokenizers"

    def __init__(self, tokenizer: Tokenizer, cache_bytes: int, written: str) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder().values()
        cuts = safe_cuts(added, written) if cache_bytes else None
        self._cache = cuts and SegmentCache(cuts, limit_bytes=cache_bytes)
        self.is_reference = self._cache is None

    def encode(self, text: str) -> bytes:
        if self._cache is None:
            return self._encode_all([text])[0]
        return self._cache.encode(text, self._encode_all)

    def _encode_all(self, texts: Sequence[str]) -> list[bytes]:
        # Unlike `encode`, this lets other threads run.
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [_packed(encoding.ids) for encoding in encodings]


def _packed(ids: list[int]) -> bytes:
    """Pack ids, and free them, in slices: other threads wait for each such call."""
    packed = b"".join(
        pack_ids(ids[start : start + SLICE]) for start in range(0, len(ids), SLICE)
    )
    while ids:
        del ids[-SLICE:]
    return packed


class Fastokens:
    """fastokens, with its own segment cache, or behind ours (`remember`)."""

    name = "fastokens"
    is_reference = False

    def __init__(self, file: Path, cache_bytes: int) -> None:
        if fastokens is None:
            raise RustFailed("not installed")
        self._tokenizer = fastokens.Tokenizer.from_file(str(file))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._cache_bytes = cache_bytes
        self._cuts: re.Pattern[str] | None = None
        self._cache: SegmentCache | None = None
        self.forget()

    def encode(self, text: str) -> bytes:
        if self._cache is not None:
            return self._cache.encode(text, self._encode_all)
        ids: bytes = self._tokenizer.encode_batch_flat([text])[0]
        return ids

    def _encode_all(self, texts: Sequence[str]) -> list[bytes]:
        ids, bounds = self._tokenizer.encode_batch_flat(texts)
        places = pairwise(memoryview(bounds).cast("Q"))
        return [ids[4 * start : 4 * end] for start, end in places]

    def remember(self, added: Iterable[AddedToken], written: str) -> None:
        """Put our segment cache in front where its own is slow.

        Its own splits a text at every added token: at each line break where blanks are
        added tokens (Gemma). Ours at those that the templates (`written`) write.
        """
        tokens = list(added)
        if self._cache_bytes and any(token.content.isspace() for token in tokens):
            self._cuts = safe_cuts(tokens, written)
        self.forget()

    def forget(self) -> None:
        """Empty the segment cache."""
        if self._cuts is None:
            self._tokenizer.enable_segment_cache(self._cache_bytes)
        else:
            self._tokenizer.enable_segment_cache(0)
            self._cache = SegmentCache(self._cuts, limit_bytes=self._cache_bytes)


def if_equal(
    loading: Future["Fastokens"], reference: Tokenizer, file: Path, written: str
) -> Fastokens | None:
    """fastokens, if it loads this tokenizer and gives the reference's ids.

    `written` is the text of the chat templates.
    """
    try:
        fast = rust(loading.result)
        fast.remember(reference.get_added_tokens_decoder().values(), written)
        different = rust(lambda: differing_probe(reference, fast.encode))
    except RustFailed as error:
        log.info("fastokens cannot load %s, using tokenizers: %s", file, error)
        return None
    if different is not None:
        log.warning(
            "fastokens differs from tokenizers for %s, using tokenizers: probe %r",
            file,
            different[:80],
        )
        return None
    fast.forget()
    return fast
