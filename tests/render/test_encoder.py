"""The ids are the reference's, whichever library encodes and whatever is cached."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from kvindex.blocks import pack_ids, unpack_ids
from render import ModelNotFound, Unrenderable
from render import libraries as module
from render.encoder import Encoder
from render.libraries import SLICE, _packed
from render.selftest import TEXTS, differing_probe
from tests.render import models

TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "<s>", "</s>")
WRITTEN = "".join(TOKENS)
CHUNKS = st.one_of(
    st.sampled_from([*TOKENS, "<|im_", "start|>", " ", "\n\n", "user\n", "e\u0301"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
PROMPTS = st.lists(CHUNKS, max_size=12).map("".join)


def _encoders(file: Path) -> list[Encoder]:
    """Each library, with a cache that holds all and one that holds nearly nothing."""
    return [
        Encoder.load(file, encoder=encoder, cache_bytes=size, written=WRITTEN)
        for encoder in ("auto", "tokenizers")
        for size in (1 << 20, 2000, 0)
    ]


def _check(reference: Tokenizer, encoders: list[Encoder], text: str) -> None:
    for special in (False, True):
        expected = pack_ids(reference.encode(text, add_special_tokens=special).ids)
        for encoder in encoders:
            assert encoder.encode(text, add_special_tokens=special) == expected


@pytest.fixture(scope="module", params=["byte_level", "first", "always", "lstrip"])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, list[Encoder]]:
    """A small tokenizer of each kind and its encoders."""
    if request.param == "byte_level":
        tokenizer = models.byte_level()
    elif request.param == "lstrip":
        odd = [
            AddedToken("<|im_start|>", lstrip=True, normalized=False),
            AddedToken("<|im_end|>", rstrip=True, normalized=False),
            AddedToken("<think>", single_word=True, normalized=False),
            AddedToken("start|>", normalized=True),
        ]
        tokenizer = models.byte_level(specials=[*odd])
    else:
        tokenizer = models.metaspace(scheme=request.param)
    directory = models.save(tmp_path_factory.mktemp("model"), tokenizer)
    return tokenizer, _encoders(directory / "tokenizer.json")


@settings(max_examples=80, deadline=None)
@given(text=PROMPTS)
def test_small_tokenizers(trained: tuple[Tokenizer, list[Encoder]], text: str) -> None:
    """Any text, with tokens whole and in pieces, has the reference's ids."""
    _check(*trained, text)


@pytest.fixture(scope="module")
def real(qwen3: Path) -> tuple[Tokenizer, list[Encoder]]:
    """Qwen3's tokenizer and its encoders, all caches small enough to turn over."""
    file = qwen3 / "tokenizer.json"
    encoders = [
        Encoder.load(file, encoder=encoder, cache_bytes=20_000, written=WRITTEN)
        for encoder in ("fastokens", "tokenizers")
    ]
    return Tokenizer.from_file(str(file)), encoders


@settings(max_examples=150, deadline=None)
@given(text=PROMPTS)
def test_qwen3(real: tuple[Tokenizer, list[Encoder]], text: str) -> None:
    """The same with the real tokenizer."""
    _check(*real, text)


def test_growing_conversation(real: tuple[Tokenizer, list[Encoder]]) -> None:
    """Each turn of a growing chat has the ids of the whole text encoded at once."""
    text = ""
    for turn in range(40):
        role = ("user", "assistant")[turn % 2]
        content = TEXTS[turn % len(TEXTS)]
        text += f"<|im_start|>{role}\n{content}<|im_end|>\n"
        _check(*real, text)


def test_around(trained: tuple[Tokenizer, list[Encoder]]) -> None:
    """What is added around a text is counted."""
    tokenizer, encoders = trained
    added = tokenizer.num_special_tokens_to_add(False)
    assert {encoder.added_ids for encoder in encoders} == {added}


def test_decode(real: tuple[Tokenizer, list[Encoder]]) -> None:
    """Ids become text again, from bytes or a list, special tokens as asked."""
    tokenizer, (encoder, _) = real
    text = "<|im_start|>user\nhé 世界<|im_end|>"
    ids = encoder.encode(text, add_special_tokens=False)
    assert encoder.decode(ids, skip_special_tokens=False) == text
    listed = unpack_ids(ids)
    assert encoder.decode(listed, skip_special_tokens=True) == "user\nhé 世界"
    assert encoder.decode([4_000_000_000], skip_special_tokens=True) == ""
    assert encoder.vocabulary_size == tokenizer.get_vocab_size() == 151_669


@pytest.mark.parametrize("wrong", [[-1], [1 << 32], b"abc"])
def test_no_ids(
    real: tuple[Tokenizer, list[Encoder]], wrong: bytes | list[int]
) -> None:
    """What is no id has no text."""
    with pytest.raises(ValueError, match=r"integer|length"):
        real[1][0].decode(wrong, skip_special_tokens=True)


@pytest.mark.parametrize("which", [0, 1], ids=["fastokens", "tokenizers"])
def test_many_threads(real: tuple[Tokenizer, list[Encoder]], which: int) -> None:
    """One encoder serves many threads at once."""
    reference, shared = real[0], real[1][which]
    texts = [f"<|im_start|>user\n{'word ' * n}<|im_end|>\n" * 3 for n in range(60)]
    expected = [pack_ids(e.ids) for e in reference.encode_batch_fast(texts)]
    wrong = []

    def encode_all() -> None:
        for text, ids in zip(texts, expected, strict=True):
            if shared.encode(text, add_special_tokens=False) != ids:
                wrong.append(text)

    threads = [threading.Thread(target=encode_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_truncation_in_the_file_is_ignored(tmp_path: Path) -> None:
    """A tokenizer.json may say to truncate or pad; prompts are whole."""
    tokenizer = models.byte_level()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    file = models.save(tmp_path, tokenizer) / "tokenizer.json"
    lengths = {
        len(encoder.encode("hello world " * 9, add_special_tokens=True))
        for encoder in _encoders(file)
    }
    assert len(lengths) == 1
    assert 4 * 4 < lengths.pop() != 64 * 4


def test_lone_surrogate(real: tuple[Tokenizer, list[Encoder]]) -> None:
    """A text that is not Unicode fails as a tokenizer error, nothing else."""
    for encoder in real[1]:
        with pytest.raises(Unrenderable) as caught:
            encoder.encode("a\ud800b", add_special_tokens=False)
        assert caught.value.reason == "tokenizer_error"


def test_selftest_finds_a_difference(qwen3: Path) -> None:
    """An encoder that is wrong in one place only is found out."""
    reference = Tokenizer.from_file(str(qwen3 / "tokenizer.json"))

    def right(text: str) -> bytes:
        return pack_ids(reference.encode(text, add_special_tokens=False).ids)

    def wrong(text: str) -> bytes:
        return right(text.replace("\u07f3\u07fd", "\u07fd\u07f3"))

    assert differing_probe(reference, right) is None
    found = differing_probe(reference, wrong)
    assert found is not None
    assert "\u07f3" in found


def test_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where fastokens fails its self-test, tokenizers encodes, and the log says so."""
    monkeypatch.setattr(module, "differing_probe", lambda *_: "a probe")
    file = models.save(tmp_path, models.byte_level()) / "tokenizer.json"
    encoder = Encoder.load(file, encoder="auto", cache_bytes=0, written="")
    assert encoder.name == "tokenizers"
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "fastokens differs from tokenizers" in caplog.text
    with pytest.raises(ModelNotFound, match="fastokens cannot be used"):
        Encoder.load(file, encoder="fastokens", cache_bytes=0, written="")


def test_without_fastokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a platform without fastokens everything works as well."""
    monkeypatch.setattr(module, "fastokens", None)
    file = models.save(tmp_path, models.byte_level()) / "tokenizer.json"
    encoder = Encoder.load(file, encoder="auto", cache_bytes=0, written="")
    assert encoder.name == "tokenizers"


def test_a_tokenizer_fastokens_does_not_load(tmp_path: Path) -> None:
    """A model kind only tokenizers knows is encoded by it."""
    from tokenizers.models import WordLevel

    tokenizer = Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    file = models.save(tmp_path, tokenizer) / "tokenizer.json"
    encoder = Encoder.load(file, encoder="auto", cache_bytes=0, written="")
    assert encoder.encode("a", add_special_tokens=True) == pack_ids([0])


def test_libraries_do_not_take_all_cores() -> None:
    """The parallelism of the libraries is off unless the user set it."""
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
    assert os.environ["RAYON_NUM_THREADS"] == "1"


def test_many_ids_are_packed_in_slices() -> None:
    """More than fit one slice: none is lost, doubled or out of its place."""
    for count in (0, 1, SLICE, SLICE + 1, 3 * SLICE + 7):
        assert unpack_ids(_packed(list(range(count)))) == list(range(count))
