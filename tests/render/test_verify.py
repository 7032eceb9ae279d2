"""The sampled check: a wrong encoder is found, counted, said once and replaced."""

import logging
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from kvindex.blocks import pack_ids
from render import Renderer
from render.encoder import Encoder
from render.libraries import Tokenizers
from render.segments import SegmentCache
from render.verify import MAX_TEXT, Verification
from tests.render import models

TEXT = "<|im_start|>user\nhello world<|im_end|>\n"


class _Wrong:
    """An encoder that gets a text wrong which has a certain word in it."""

    name = "fastokens"
    is_reference = False

    def __init__(self, reference: Tokenizer) -> None:
        self._right = Tokenizers(reference, 0, "")

    def encode(self, text: str) -> bytes:
        ids = self._right.encode(text)
        return ids[4:] if "world" in text else ids


def _at_once(check: Callable[[], None]) -> None:
    check()


def _encoder(share: float = 1.0, chance: random.Random | None = None) -> Encoder:
    reference = models.byte_level()
    verification = Verification(reference, share=share, chance=chance, run=_at_once)
    return Encoder(reference, _Wrong(reference), verification)


def _ids(text: str) -> bytes:
    ids = models.byte_level().encode(text, add_special_tokens=False).ids
    return pack_ids(ids)


def test_a_wrong_encoder_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """Once a text is wrong the reference encodes, and one line says so."""
    encoder = _encoder()
    assert encoder.encode("hello", add_special_tokens=False) == _ids("hello")
    assert (encoder.name, encoder.checked, encoder.mismatches) == ("fastokens", 1, 0)
    encoder.encode(TEXT, add_special_tokens=False)
    assert (encoder.name, encoder.checked, encoder.mismatches) == ("tokenizers", 2, 1)
    for _ in range(3):
        assert encoder.encode(TEXT, add_special_tokens=False) == _ids(TEXT)
    assert (encoder.checked, encoder.mismatches) == (2, 1)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "fastokens gave other ids" in caplog.text
    assert "hello" not in caplog.text


def test_the_segment_cache_is_checked_too(caplog: pytest.LogCaptureFixture) -> None:
    """A cut at the wrong place, or a damaged entry, ends the cache."""
    reference = models.byte_level()
    library = Tokenizers(reference, 1 << 20, "<|im_start|>")
    cache = library._cache
    assert isinstance(cache, SegmentCache)
    verification = Verification(reference, share=1.0, run=_at_once)
    encoder = Encoder(reference, library, verification)
    assert encoder.encode(TEXT, add_special_tokens=False) == _ids(TEXT)
    assert encoder.mismatches == 0
    cache._entries[TEXT] = b"\1\0\0\0"
    encoder.encode(TEXT, add_special_tokens=False)
    assert encoder.mismatches == 1
    assert encoder.encode(TEXT, add_special_tokens=False) == _ids(TEXT)
    assert "the segment cache gave other ids" in caplog.text


@pytest.mark.parametrize(("share", "least", "most"), [(0, 0, 0), (0.1, 60, 140)])
def test_the_share(share: float, least: int, most: int) -> None:
    """Chance decides which texts are checked; none are at 0."""
    encoder = _encoder(share, random.Random(1))
    for number in range(1000):
        encoder.encode(f"text {number}", add_special_tokens=False)
    assert least <= encoder.checked <= most


def test_it_never_waits() -> None:
    """One check at a time, beside the requests; what comes meanwhile is not checked."""
    begun: list[Callable[[], None]] = []
    verification = Verification(models.byte_level(), share=1.0, run=begun.append)
    wrong: list[str] = []
    for text in ("one", "two", "x" * (MAX_TEXT + 1)):
        verification.offer(text, _ids(text), lambda: wrong.append("one or more"))
    assert len(begun) == 1
    begun.pop()()
    verification.offer("two", b"", lambda: wrong.append("two"))
    begun.pop()()
    verification.offer("x" * (MAX_TEXT + 1), b"", lambda: wrong.append("three"))
    assert begun == []
    assert wrong == ["two"]
    assert verification.checked == 2


def test_no_thread_to_be_had(caplog: pytest.LogCaptureFixture) -> None:
    """The text is encoded all the same, and the next is checked."""
    calls = []

    def run(check: Callable[[], None]) -> None:
        calls.append(check)
        raise RuntimeError("can't start new thread")

    verification = Verification(models.byte_level(), share=1.0, run=run)
    for _ in range(2):
        verification.offer("one", b"", lambda: None)
    assert len(calls) == 2
    assert "no thread" in caplog.text


@pytest.mark.parametrize("encoder", ["auto", "tokenizers"])
def test_a_renderer_in_production(
    tmp_path: Path, encoder: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Right encoders stay; the check runs in a thread of its own."""
    path = models.save(tmp_path, models.byte_level())
    renderer = Renderer.load(path, encoder=encoder, verify_encoder=1.0)
    name = renderer.encoder_name
    with caplog.at_level(logging.WARNING):
        for number in range(50):
            content = f"hello {number} <|im_start|> e\u0301"
            renderer.render_chat({"messages": [{"role": "user", "content": content}]})
        for thread in threading.enumerate():
            if thread.name == "verify-encoder":
                thread.join(10)
    checked, mismatches = renderer.encoder_checks
    assert 1 <= checked <= 50
    assert (mismatches, renderer.encoder_name, caplog.text) == (0, name, "")
    assert renderer.with_profile("sglang").encoder_checks == (checked, 0)
