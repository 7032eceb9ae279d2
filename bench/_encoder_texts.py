"""Hard texts for encoders, made by hypothesis: for `bench encoder` and the tests."""

import base64
from collections.abc import Sequence

from hypothesis import strategies as st
from tokenizers import AddedToken

MARKS = (
    "\u0301\u0308\u0323\u0302\u0345\u07f3\u07fd"
    "\u0f71\u0f72\u3099\u309a\u1161\u11a8\u20dd"
)
SPACES = " \t\n\r\x0b\x0c\u00a0\u2003\u2028\u3000\u200b\ufeff"
WORDS = (
    *("the", "The", "it's", "we'LL", "don't", "user", "assistant", "def f(x):", "e"),
    *("a1", "1234567", "3.14", "1e-9", "½", "٣٤", "Ⅷ", "Привет", "世界", "こんにちは"),
    *("안녕", "مرحبا", "नमस्ते", "ไทย", "\ufb01", "\ufdfa", "\u212b", "\x00", "\x7f"),
    *(
        "👩\u200d👩\u200d👧",
        "👍🏽",
        "🏳\ufe0f\u200d🌈",
        "🇩🇪",
        "_",
        "-->",
        "</",
        "\\n",
        "▁",
    ),
    *('{"a": [1, 2]}', "http://x.y/z?q=%20", "Ġ", "##", "<0x0A>", "<unk>"),
)
MANY = 150  # added tokens that are drawn from, of models that have thousands


def texts(added: Sequence[AddedToken]) -> st.SearchStrategy[str]:
    """Texts of pieces of all kinds; `added` are the tokenizer's added tokens."""
    piece = _piece(added)
    short = st.lists(piece, max_size=14).map("".join)
    long = st.tuples(short, st.integers(2, 60)).map(lambda two: two[0] * two[1])
    return st.one_of(short, short, short, long)


def chats(added: Sequence[AddedToken]) -> st.SearchStrategy[list[str]]:
    """Chats as they grow: each text is the one before and another turn."""
    marks = st.sampled_from(contents(added))
    turn = st.tuples(
        marks, st.sampled_from(["user\n", "assistant", "\n", ""]), texts(added), marks
    ).map("".join)
    turns = st.lists(turn, min_size=2, max_size=6)
    return turns.map(
        lambda given: ["".join(given[:n]) for n in range(1, len(given) + 1)]
    )


def contents(added: Sequence[AddedToken]) -> list[str]:
    """What is drawn from: the tokens with special rules first, then some of all."""
    odd = [t for t in added if t.lstrip or t.rstrip or t.single_word or t.normalized]
    step = max(1, len(added) // MANY)
    chosen = [*odd[:: max(1, len(odd) // MANY)], *added[::step]]
    return list(dict.fromkeys(t.content for t in chosen)) or ["<none>"]


def _piece(added: Sequence[AddedToken]) -> st.SearchStrategy[str]:
    token = st.sampled_from(contents(added))
    cut = st.tuples(token, st.integers(1, 12), st.booleans()).map(
        lambda three: three[0][: three[1]] if three[2] else three[0][three[1] :]
    )
    letter = st.characters(exclude_categories=["Cs"])
    marked = st.tuples(letter, st.text(MARKS, max_size=4)).map("".join)
    spaces = st.tuples(st.text(SPACES, min_size=1, max_size=4), st.integers(1, 20))
    entropy = st.binary(min_size=4, max_size=60)
    return st.one_of(
        token,
        token,
        cut,
        st.text(letter, max_size=12),
        st.lists(marked, max_size=4).map("".join),
        spaces.map(lambda two: two[0] * two[1]),
        st.sampled_from(WORDS),
        st.sampled_from(WORDS).map(lambda word: " " + word),
        entropy.map(lambda data: base64.b64encode(data).decode()),
        entropy.map(bytes.hex),
    )
