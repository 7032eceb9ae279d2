"""Ids to text: as the library does it, however they are cut, in linear time."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE, WordLevel

from render.detokenizer import REPLACEMENT, Vocabulary
from render.parsers.marks import Marks
from tests.render.models import byte_level, metaspace

TEXTS = (
    "Hello world  foo\n\tbar",
    "family 👩‍👩‍👧, 🌍 café é ﷽ नमस्ते",
    '{"a": [1, 2]} \r\n\n  x',
    "  two spaces first",
    "Привет 世界",
)


def fallback() -> Tokenizer:
    """A SentencePiece-like tokenizer with a token for each byte (Llama 2, Gemma)."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocabulary |= {"\u2581": 256, "a": 257, "b": 258, "\u2581a": 259, "</s>": 260}
    tokenizer = Tokenizer(BPE(vocabulary, [("\u2581", "a")], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


TOKENIZERS = {
    "byte level": byte_level(),
    "metaspace": metaspace(),
    "byte fallback": fallback(),
}


def streamed(vocabulary: Vocabulary, ids: list[int], size: int = 1) -> str:
    """The text of ids that come in pieces."""
    detokenizer = vocabulary.detokenizer(skip_special_tokens=False)
    pieces = [ids[place : place + size] for place in range(0, len(ids), size)]
    return "".join(map(detokenizer.feed, pieces))


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("text", TEXTS)
def test_as_the_library(name: str, text: str) -> None:
    """One by one, in pieces and at once: the text of the library."""
    tokenizer = TOKENIZERS[name]
    vocabulary = Vocabulary(tokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    wanted = tokenizer.decode(ids, skip_special_tokens=False)
    for size in (1, 3, 1000):
        assert streamed(vocabulary, ids, size) == wanted


@pytest.mark.parametrize("name", TOKENIZERS)
@given(seed=st.integers(0, 10**9), size=st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_any_ids_in_any_pieces(name: str, seed: int, size: int) -> None:
    """Random ids, broken characters among them: the cuts never matter."""
    tokenizer = TOKENIZERS[name]
    vocabulary = Vocabulary(tokenizer)
    choose = random.Random(seed)
    ids = [choose.randrange(tokenizer.get_vocab_size()) for _ in range(40)]
    whole = vocabulary.detokenizer(skip_special_tokens=False).feed(ids)
    assert streamed(vocabulary, ids, size) == whole
    if name == "byte level":
        wanted = tokenizer.decode(ids, skip_special_tokens=False)
        assert whole.rstrip(REPLACEMENT) == wanted.rstrip(REPLACEMENT)


def test_the_first_space() -> None:
    """SentencePiece's is left out at the beginning, and kept after a prompt."""
    vocabulary = Vocabulary(fallback())
    assert vocabulary.detokenizer().feed([259, 259]) == "a a"
    assert vocabulary.detokenizer(prompt_ids=[257]).feed([259, 259]) == " a a"
    # Special tokens that are left out are no text before it.
    assert vocabulary.detokenizer(prompt_ids=[260]).feed([259]) == "a"


def test_incomplete_characters() -> None:
    """They wait; what cannot become one is U+FFFD; what is cut at the end, nothing."""
    vocabulary = Vocabulary(fallback())
    detokenizer = vocabulary.detokenizer()
    assert detokenizer.feed([0xE4, 0xB8]) == ""
    assert detokenizer.pending
    assert detokenizer.feed([0x96]) == "世"
    assert detokenizer.feed([0xE4, 0xB8, 257]) == 2 * REPLACEMENT + "a"
    assert detokenizer.feed([0xF0, 0x9F]) == ""


def test_special_tokens() -> None:
    """They are left out, or written, or become marks, which break a character."""
    tokenizer = byte_level()
    vocabulary = Vocabulary(tokenizer)
    ids = tokenizer.encode("a<|im_end|>b", add_special_tokens=False).ids
    assert vocabulary.detokenizer().feed(ids) == "ab"
    written = vocabulary.detokenizer(skip_special_tokens=False)
    assert written.feed(ids) == "a<|im_end|>b"
    marks = Marks(["<|im_end|>"], vocabulary.added_ids)
    marked = vocabulary.detokenizer(marks=marks.by_id).feed(ids)
    assert marked == f"a{marks.of('<|im_end|>')}b"
    assert marks.plain(marked) == "a<|im_end|>b"
    first = tokenizer.encode("漢", add_special_tokens=False).ids[0]
    broken = vocabulary.detokenizer(marks=marks.by_id)
    end = vocabulary.added_ids["<|im_end|>"]
    assert broken.feed([first, end]) == REPLACEMENT + marks.of("<|im_end|>")


def test_unknown_decoders_are_the_librarys() -> None:
    """A tokenizer without a decoder that is known here."""
    tokenizer = Tokenizer(WordLevel({"un": 0, "##known": 1, "word": 2}, "un"))
    tokenizer.decoder = decoders.WordPiece()
    assert streamed(Vocabulary(tokenizer), [0, 1, 2]) == "unknown word"


def test_endless_broken_bytes_cost_no_more() -> None:
    """Bytes that never become a character: time grows with their number only."""
    vocabulary = Vocabulary(byte_level())
    pieces = vocabulary.pieces
    broken = next(one for one in range(400) if pieces[one] == b"\xe4")
    begun = time.process_time()
    assert len(streamed(vocabulary, [broken] * 100_000)) == 99_999
    assert time.process_time() - begun < 5
