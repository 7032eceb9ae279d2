"""Encoders against the reference, text by text."""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from bench._encoder_texts import chats, contents, texts
from kvindex.blocks import pack_ids
from render.encoder import Encoder
from render.errors import ModelNotFound

CACHE = 1 << 20  # bytes of the segment cache


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one tokenizer; `different` are texts that an encoder got wrong.

    `encoders` are the libraries that were compared, `tokens` those of the reference.
    """

    name: str
    encoders: tuple[str, ...]
    texts: int
    tokens: int
    different: tuple[str, ...]
    seconds: float


class _Check:
    """Encodes a text with each encoder and with the reference."""

    def __init__(self, file: Path) -> None:
        self.reference = Tokenizer.from_file(str(file))
        self.reference.no_truncation()
        self.reference.no_padding()
        self.added = list(self.reference.get_added_tokens_decoder().values())
        written = "\n".join(contents(self.added))
        self.encoders = list(_encoders(file, written))
        self.texts = 0
        self.tokens = 0
        self.different: list[str] = []

    def compare(self, grown: Sequence[str]) -> None:
        """Compare texts, one after the other, each of them twice."""
        for text in grown:
            ids = pack_ids(self.reference.encode(text, add_special_tokens=False).ids)
            self.texts += 1
            self.tokens += len(ids) // 4
            for encoder in self.encoders:
                given_ids = [
                    encoder.encode(text, add_special_tokens=False) for _ in range(2)
                ]
                if given_ids != [ids, ids]:
                    self.different.append(text)


def check(file: Path, *, count: int, start: int = 0) -> Report:
    """Compare at least so many texts; `start` seeds them.

    One in four examples is a chat that grows turn by turn, so that segment caches
    answer for its beginning.
    """
    begun = time.perf_counter()
    comparison = _Check(file)
    added = comparison.added
    single = texts(added).map(lambda text: [text])

    @seed(start)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(single, single, single, chats(added)))
    def compare(grown: list[str]) -> None:
        comparison.compare(grown)

    compare()
    return Report(
        name=file.parent.name,
        encoders=tuple(encoder.name for encoder in comparison.encoders),
        texts=comparison.texts,
        tokens=comparison.tokens,
        different=tuple(sorted(comparison.different, key=len)),
        seconds=time.perf_counter() - begun,
    )


def _encoders(file: Path, written: str) -> list[Encoder]:
    """Both libraries with their segment caches, or the one that loads the file."""
    found = []
    for name in ("fastokens", "tokenizers"):
        try:
            found.append(
                Encoder.load(file, encoder=name, cache_bytes=CACHE, written=written)
            )
        except ModelNotFound:
            if name == "tokenizers":
                raise
    return found
