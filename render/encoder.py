"""Text to token ids and back.

Two libraries that give the same ids: tokenizers, the reference, and fastokens, which is
ten to eighty times faster but does not load every tokenizer. fastokens is used where it
loads one and passes a self-test against the reference, and a share of what it encodes
may be checked all along (`verify.py`). Ids are unsigned 32-bit little-endian.
"""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from kvindex.blocks import pack_ids, unpack_ids
from render.detokenizer import Vocabulary
from render.errors import ModelNotFound, Unrenderable, check_one_of
from render.libraries import Fastokens, Library, Tokenizers, if_equal
from render.rust import RustFailed, rust
from render.verify import Verification

log = logging.getLogger(__name__)

ENCODERS = ("auto", "fastokens", "tokenizers")


class Encoder:
    """One model's tokenizer. Safe to use from several threads.

    `added_ids` is how many ids are added where special tokens are asked for,
    `mismatches` how many texts were found that the library encoded wrongly.
    """

    def __init__(
        self,
        reference: Tokenizer,
        library: Library,
        verification: Verification | None = None,
    ) -> None:
        self._reference = reference
        self._library = library
        self._verification = verification
        self._switching = threading.Lock()
        self.mismatches = 0
        self._before, self._after = _special_ids(reference)
        self.added_ids = len(self._before + self._after) // 4
        self.vocabulary_size: int = reference.get_vocab_size(with_added_tokens=True)
        added = reference.get_added_tokens_decoder()
        self.added_tokens: tuple[AddedToken, ...] = tuple(added.values())
        self.special_ids: frozenset[int] = frozenset(
            token_id for token_id, token in added.items() if token.special
        )

    @classmethod
    def load(
        cls,
        file: Path,
        *,
        encoder: str,
        cache_bytes: int,
        written: str,
        verified: float = 0.0,
    ) -> "Encoder":
        """Load a tokenizer.json.

        `encoder` is one of ENCODERS, `cache_bytes` bounds the segment cache (0: none),
        `written` is the text of the chat templates. `verified` is the share of texts
        that the reference encodes again (`verify.py`). Raises ModelNotFound if the
        file is no tokenizer, or not one for the encoder asked for.
        """
        check_one_of("encoder", encoder, ENCODERS)
        with ThreadPoolExecutor(1) as beside:
            fast: Future[Fastokens] | None = None
            if encoder != "tokenizers":
                fast = beside.submit(Fastokens, file, cache_bytes)
            try:
                reference = rust(lambda: Tokenizer.from_file(str(file)))
            except RustFailed as error:
                raise ModelNotFound(f"cannot read {file}: {error}") from error
            reference.no_truncation()
            reference.no_padding()
            library: Library | None = None
            if fast is not None:
                library = if_equal(fast, reference, file, written)
        if library is None and encoder == "fastokens":
            raise ModelNotFound(f"fastokens cannot be used for {file}")
        if library is None:
            library = Tokenizers(reference, cache_bytes, written)
        return cls(reference, library, Verification(reference, share=verified))

    @property
    def name(self) -> str:
        """The library that encodes: "fastokens" or "tokenizers"."""
        return self._library.name

    @property
    def checked(self) -> int:
        """How many texts the reference has encoded again."""
        return 0 if self._verification is None else self._verification.checked

    def encode(self, text: str, *, add_special_tokens: bool) -> bytes:
        """The ids of a text, with what the tokenizer adds around it (BOS) or without.

        Raises Unrenderable("tokenizer_error").
        """
        library = self._library
        try:
            ids = rust(lambda: library.encode(text))
        except RustFailed as error:
            raise Unrenderable("tokenizer_error", str(error)) from error
        if self._verification is not None and not library.is_reference:
            self._verification.offer(text, ids, lambda: self._distrust(library))
        return self.surround(ids) if add_special_tokens else ids

    @cached_property
    def longest_token(self) -> int:
        """The length of the longest token as the vocabulary spells it, in characters.

        Takes a while to find out, so it is asked for before requests come.
        """
        return max(map(len, self._reference.get_vocab(with_added_tokens=True)))

    @cached_property
    def texts(self) -> Vocabulary:
        """What each id is in a text."""
        return Vocabulary(self._reference)

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

    def _distrust(self, library: Library) -> None:
        """Encode with the reference alone from now on: a library gave other ids."""
        with self._switching:
            self.mismatches += 1
            if self._library is not library:
                return
            self._library = Tokenizers(self._reference, 0, "")
        log.error(
            "%s gave other ids than tokenizers for a text in production; the model's "
            "texts are encoded by tokenizers alone until a restart",
            "the segment cache" if library.name == "tokenizers" else library.name,
        )

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
