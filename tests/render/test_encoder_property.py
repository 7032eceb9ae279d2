"""Hard texts and growing chats: every encoder's ids are those of plain tokenizers.

`python -m bench encoder` does the same with as many texts, and tokenizers, as wanted.
"""

from pathlib import Path

import pytest

from bench._encoder_check import check
from tests.render import kinds, models


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_a_tiny_tokenizer_of_each_kind(tmp_path: Path, kind: str) -> None:
    """With added tokens that strip, are words only, are normalized, or overlap."""
    path = models.save(tmp_path, kinds.KINDS[kind]())
    report = check(path / "tokenizer.json", count=60)
    assert report.different == ()
    assert report.encoders[-1] == "tokenizers"
    assert report.texts >= 60


def test_the_packaged_tokenizer(qwen3: Path) -> None:
    """Qwen3's, in both libraries."""
    report = check(qwen3 / "tokenizer.json", count=60)
    assert report.different == ()
    assert report.encoders == ("fastokens", "tokenizers")


def test_a_difference_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut that is not safe is found."""
    monkeypatch.setattr("render.segments._is_safe", lambda *_: True)
    path = models.save(tmp_path, kinds.KINDS["byte_level"]())
    report = check(path / "tokenizer.json", count=60)
    assert report.different
