"""Text to token ids and back.

Two libraries that give the same ids: tokenizers, the reference, and fastokens, which is
ten to eighty times faster but does not load every tokenizer. fastokens is used where it
loads one and passes a self-test against the reference. Both let other threads run while
they encode. Ids are unsigned 32-bit little-endian.

Threads are the caller's: the two libraries' own parallelism is switched off below, as
several requests are encoded at once and a pool of all cores would starve the rest.
"""

import logging
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
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

from kvindex.blocks import pack_ids, unpack_ids
from render.errors import ModelNotFound, Unrenderable
from render.rust import RustFailed, rust
from render.segments import SegmentCache, safe_cuts
from render.selftest import differing_probe

log = logging.getLogger(__name__)

SLICE = 65_536
"""Ids that are handled in one go: about a millisecond."""
ENCODERS = ("auto", "fastokens", "tokenizers")


class Library(Protocol):
    """Encodes without adding special tokens."""

    name: str

    def encode(self, text: str) -> bytes:
        """The ids of one text; may raise anything."""
        ...


class Encoder:
    """One model's tokenizer. Safe to use from several threads.

    `name` is the library that encodes ("fastokens" or "tokenizers"), `added_ids` how
    many ids are added where special tokens are asked for.
    """

    def __init__(self, reference: Tokenizer, library: Library) -> None:
        self._reference = reference
        self._library = library
        self._before, self._after = _special_ids(reference)
        self.name = library.name
        self.added_ids = len(self._before + self._after) // 4
        self.vocabulary_size: int = reference.get_vocab_size(with_added_tokens=True)
        added = reference.get_added_tokens_decoder()
        self.added_tokens: tuple[AddedToken, ...] = tuple(added.values())
        self.special_ids: frozenset[int] = frozenset(
            token_id for token_id, token in added.items() if token.special
        )

    @classmethod
    def load(
        cls, file: Path, *, encoder: str, cache_bytes: int, written: str
    ) -> "Encoder":
        """Load a tokenizer.json.

        `encoder` is one of ENCODERS, `cache_bytes` bounds the segment cache (0: none),
        `written` is the text of the chat templates. Raises ModelNotFound if the file
        is no tokenizer, or not one for the encoder asked for.
        """
        if encoder not in ENCODERS:
            raise ModelNotFound(f"no encoder {encoder!r}: one of {', '.join(ENCODERS)}")
        with ThreadPoolExecutor(1) as beside:
            fast: Future[_Fastokens] | None = None
            if encoder != "tokenizers":
                fast = beside.submit(_Fastokens, file, cache_bytes)
            try:
                reference = rust(lambda: Tokenizer.from_file(str(file)))
            except RustFailed as error:
                raise ModelNotFound(f"cannot read {file}: {error}") from error
            reference.no_truncation()
            reference.no_padding()
            library: Library | None = None
            if fast is not None:
                library = _if_equal(fast, reference, file)
        if library is None and encoder == "fastokens":
            raise ModelNotFound(f"fastokens cannot be used for {file}")
        if library is None:
            library = _Tokenizers(reference, cache_bytes, written)
        return cls(reference, library)

    def encode(self, text: str, *, add_special_tokens: bool) -> bytes:
        """The ids of a text, with what the tokenizer adds around it (BOS) or without.

        Raises Unrenderable("tokenizer_error").
        """
        try:
            ids = rust(lambda: self._library.encode(text))
        except RustFailed as error:
            raise Unrenderable("tokenizer_error", str(error)) from error
        return self.surround(ids) if add_special_tokens else ids

    @cached_property
    def longest_token(self) -> int:
        """The length of the longest token as the vocabulary spells it, in characters.

        Takes a while to find out, so it is asked for before requests come.
        """
        return max(map(len, self._reference.get_vocab(with_added_tokens=True)))

    def vocabulary(self) -> dict[str, int]:
        """The model's own tokens as they are spelled, without the added ones."""
        added = {token.content for token in self.added_tokens}
        every = self._reference.get_vocab(with_added_tokens=False)
        return {token: id_ for token, id_ in every.items() if token not in added}

    def spelling(self, token_id: int) -> str:
        """The vocabulary's own spelling of an id; empty for one it does not know."""
        return self._reference.id_to_token(token_id) or ""

    def offsets(self, text: str, *, add_special_tokens: bool) -> list[tuple[int, int]]:
        """Start and end of each token in the text, in characters.

        Raises Unrenderable("tokenizer_error").
        """
        try:
            (encoding,) = rust(
                lambda: self._reference.encode_batch(
                    [text], add_special_tokens=add_special_tokens
                )
            )
        except RustFailed as error:
            raise Unrenderable("tokenizer_error", str(error)) from error
        return list(encoding.offsets)

    def after(self) -> bytes:
        """What the tokenizer adds after a text."""
        return self._after

    def surround(self, ids: bytes) -> bytes:
        """Add the special tokens of the tokenizer's post-processor to ids."""
        return self._before + ids + self._after

    def decode(
        self, token_ids: bytes | Sequence[int], *, skip_special_tokens: bool
    ) -> str:
        """The text of ids; ids out of the vocabulary have none.

        Raises ValueError if these are no ids.
        """
        if not isinstance(token_ids, bytes):
            token_ids = pack_ids(token_ids)
        ids = unpack_ids(token_ids)
        return self._reference.decode(ids, skip_special_tokens=skip_special_tokens)


class _Tokenizers:
    """Hugging Face's tokenizers, behind our segment cache."""

    name = "tokenizers"

    def __init__(self, tokenizer: Tokenizer, cache_bytes: int, written: str) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder().values()
        cuts = safe_cuts(added, written) if cache_bytes else None
        self._cache = cuts and SegmentCache(cuts, limit_bytes=cache_bytes)

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


class _Fastokens:
    """fastokens, with its own segment cache."""

    name = "fastokens"

    def __init__(self, file: Path, cache_bytes: int) -> None:
        if fastokens is None:
            raise RustFailed("not installed")
        self._tokenizer = fastokens.Tokenizer.from_file(str(file))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._cache_bytes = cache_bytes
        self.forget()

    def encode(self, text: str) -> bytes:
        ids: bytes = self._tokenizer.encode_batch_flat([text])[0]
        return ids

    def forget(self) -> None:
        """Empty the segment cache."""
        self._tokenizer.enable_segment_cache(self._cache_bytes)


def _if_equal(
    loading: "Future[_Fastokens]", reference: Tokenizer, file: Path
) -> _Fastokens | None:
    """fastokens, if it loads this tokenizer and gives the reference's ids."""
    try:
        fast = rust(loading.result)
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


def _special_ids(reference: Tokenizer) -> tuple[bytes, bytes]:
    """What the post-processor puts before and after a text.

    Raises ModelNotFound if that is not the same for each text.
    """
    around = {_around(reference, text) for text in ("a", "Two words.", "12 \n")}
    found = around.pop()
    if around or found is None:
        raise ModelNotFound("the tokenizer's post-processor is not understood")
    return found


def _around(reference: Tokenizer, text: str) -> tuple[bytes, bytes] | None:
    bare = reference.encode(text, add_special_tokens=False).ids
    full = reference.encode(text, add_special_tokens=True).ids
    for start in range(len(full) - len(bare) + 1):
        end = start + len(bare)
        if full[start:end] == bare:
            return pack_ids(full[:start]), pack_ids(full[end:])
    return None
