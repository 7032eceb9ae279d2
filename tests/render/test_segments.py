"""Where a text may be cut, and a cache that stays small and exact."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken

from render.segments import SegmentCache, safe_cuts


def _token(content: str, **options: bool) -> AddedToken:
    return AddedToken(content, **{"normalized": False, "special": True, **options})


def _cuts(*tokens: AddedToken, written: str | None = None) -> set[str]:
    text = written if written is not None else " ".join(t.content for t in tokens)
    pattern = safe_cuts(tokens, text)
    return (
        set() if pattern is None else set(pattern.pattern.replace("\\", "").split("|"))
    )


def test_only_safe_tokens_are_cut_at() -> None:
    """A token that its surroundings can change is never cut at."""
    safe = _token("<a>")
    assert _cuts(safe) == {"<a>"}
    for unsafe in (
        _token("<b>", lstrip=True),
        _token("<b>", single_word=True),
        _token("<b>", normalized=True),
        _token(" <b>"),
        _token("word"),
        _token("_b>"),
    ):
        assert _cuts(safe, unsafe) == {"<a>"}
    assert _cuts(safe, _token("<b>", rstrip=True)) == {"<a>", "<b>"}


def test_tokens_that_meet_are_not_cut_at() -> None:
    """One inside the other, or overlapping: neither is safe."""
    assert _cuts(_token("<a>"), _token("x<a>y"), _token("<c>")) == {"<c>"}
    assert _cuts(_token("<a><"), _token("<b>"), _token("[c]")) == {"[c]"}
    assert _cuts(_token("<<")) == set()


def test_only_tokens_the_templates_write() -> None:
    """Tokens no template writes are not worth cutting at."""
    assert _cuts(_token("<a>"), _token("<b>"), written="{{ '<b>' }}") == {"<b>"}
    assert safe_cuts([_token("<a>")], "nothing") is None


class _Codes:
    """An encoder of one byte a character that counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> list[bytes]:
        self.asked.extend(texts)
        return [text.encode() for text in texts]


def _cache(limit: int) -> SegmentCache:
    cuts = safe_cuts([_token("<a>"), _token("<b>")], "<a><b>")
    assert cuts is not None
    return SegmentCache(cuts, limit_bytes=limit)


def test_only_new_segments_are_encoded() -> None:
    """A longer conversation encodes its last turn alone; a repetition once."""
    cache, encode = _cache(10_000), _Codes()
    assert cache.encode("x<a>one<b>", encode) == b"x<a>one<b>"
    assert encode.asked == ["x", "<a>one", "<b>"]
    assert cache.encode("x<a>one<b><a>two<a>two", encode) == b"x<a>one<b><a>two<a>two"
    assert encode.asked[3:] == ["<a>two"]
    assert (cache.hits, cache.misses, len(cache)) == (3, 4, 4)


def test_empty_text() -> None:
    """Nothing is encoded for an empty text."""
    encode = _Codes()
    assert _cache(10_000).encode("", encode) == b""
    assert encode.asked == []


@given(st.lists(st.text("<ab>xyz", max_size=60), max_size=60), st.integers(0, 4000))
def test_bounded_and_exact(texts: list[str], limit: int) -> None:
    """Whatever comes, the ids are whole and the bytes stay within the bound."""
    cache, encode = _cache(limit), _Codes()
    for text in texts:
        assert cache.encode(text, encode) == text.encode()
        assert 0 <= cache.bytes <= limit
    assert (cache.bytes == 0) == (len(cache) == 0)


def test_least_recently_used_goes_first() -> None:
    """What is still used stays."""
    cache, encode = _cache(4_000), _Codes()
    for i in range(100):
        cache.encode(f"<a>kept<b>{i}", encode)
    assert encode.asked.count("<a>kept") == 1
    cache.encode("<b>0", encode)
    assert encode.asked.count("<b>0") == 2
