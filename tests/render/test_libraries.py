"""fastokens behind our segment cache, for tokenizers with blanks as added tokens."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from kvindex.blocks import pack_ids
from render.libraries import Fastokens
from tests.render import models

pytest.importorskip("fastokens", reason="there is no fastokens for this platform")

WRITTEN = models.CHATML
PIECES = ["<|im_start|>", "<|im_end|>", "<|im_start", "|>", "\n", "\n\n", "\n\n\n", " "]
TEXTS = st.lists(
    st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), max_size=30
).map("".join)


def _reference() -> Tokenizer:
    tokenizer = models.byte_level()
    tokenizer.add_tokens([AddedToken("\n" * n, normalized=False) for n in (1, 2, 3)])
    return tokenizer


REFERENCE = _reference()


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Fastokens:
    """A tokenizer whose line breaks are added tokens, as Gemma's."""
    file = tmp_path_factory.mktemp("model") / "tokenizer.json"
    _reference().save(str(file))
    library = Fastokens(file, 1 << 20)
    library.remember(_reference().get_added_tokens_decoder().values(), WRITTEN)
    return library


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_the_same_ids(fast: Fastokens, texts: list[str]) -> None:
    """Turns that are known and turns that are not: what the reference gives."""
    chat = ""
    for text in texts:
        chat += f"<|im_start|>user\n{text}<|im_end|>\n"
        ids = REFERENCE.encode(chat, add_special_tokens=False).ids
        assert fast.encode(chat) == pack_ids(ids)


def test_only_new_turns_are_encoded(
    fast: Fastokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follow-up turn is cut at the template's tokens, not at line breaks."""
    encode_all = fast._encode_all
    asked: list[str] = []

    def encode(texts: list[str]) -> list[bytes]:
        asked.extend(texts)
        return encode_all(texts)

    monkeypatch.setattr(fast, "_encode_all", encode)
    fast.forget()
    fast.encode("<|im_start|>user\na\n\nb<|im_end|>")
    assert asked == ["<|im_start|>user\na\n\nb", "<|im_end|>"]
    fast.encode("<|im_start|>user\na\n\nb<|im_end|>\n<|im_start|>c")
    assert asked[2:] == ["<|im_end|>\n", "<|im_start|>c"]


@pytest.mark.parametrize(("blanks", "cache_bytes"), [(False, 1 << 20), (True, 0)])
def test_its_own_cache_otherwise(
    tmp_path: Path, blanks: bool, cache_bytes: int
) -> None:
    """Without blanks among the added tokens, or without a cache, ours is not used."""
    tokenizer = _reference() if blanks else models.byte_level()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    library = Fastokens(tmp_path / "tokenizer.json", cache_bytes)
    library.remember(tokenizer.get_added_tokens_decoder().values(), WRITTEN)
    assert library._cache is None
    ids = tokenizer.encode("a\n\nb<|im_end|>", add_special_tokens=False).ids
    assert library.encode("a\n\nb<|im_end|>") == pack_ids(ids)
