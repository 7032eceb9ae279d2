"""Stop strings across pieces of a text, against a plain search."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from render.derender_stops import Stopped, StopStrings

MARK = "\ud800"
TEXT = st.text("ab<", max_size=60)
STOPS = st.lists(st.text("ab<", min_size=1, max_size=6), min_size=1, max_size=4)


def run(stops: StopStrings, pieces: list[str]) -> tuple[str, str | None]:
    """What is let through, and the stop string that ended it."""
    out = ""
    for piece in pieces:
        certain = stops.feed(piece)
        if isinstance(certain, Stopped):
            return out + certain.text, certain.stop
        out += certain
    return out + stops.end(), None


def plain(text: str, stops: list[str], *, include: bool) -> tuple[str, str | None]:
    """The same, by looking at every place where one may end; the longest counts."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end if include else end - len(stop)], stop
    return text, None


@given(TEXT, STOPS, st.booleans(), st.integers(1, 7))
@settings(max_examples=500, deadline=None)
def test_as_a_plain_search(
    text: str, stops: list[str], include: bool, size: int
) -> None:
    """In pieces of any size."""
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    found = run(StopStrings(stops, include=include), pieces)
    assert found == plain(text, stops, include=include)


@given(TEXT, STOPS, st.booleans())
@settings(max_examples=200, deadline=None)
def test_through_marks(text: str, stops: list[str], include: bool) -> None:
    """A mark counts as the text it stands for: here, one for `a<`."""

    def written(character: str) -> str:
        return "a<" if character == MARK else character

    marked = list(text.replace("a<", MARK))
    kept, stop = run(StopStrings(stops, include=include, written=written), marked)
    assert (kept.replace(MARK, "a<"), stop) == plain(text, stops, include=include)


def test_not_before_it_is_armed() -> None:
    """What is whole before counts for nothing; what is only begun does."""
    stops = StopStrings(["ab"])
    assert stops.feed("xaby", armed=False) == "xaby"
    assert stops.feed("za", armed=False) == "z"
    assert stops.feed("b") == Stopped("", "ab")


def test_a_long_stop_string_is_no_burden() -> None:
    """The worst there is: every character may be the middle of a long one."""
    stops = StopStrings(["a" * 50_000 + "b" + "a" * 50_000])
    begun = time.process_time()
    out = "".join(str(stops.feed("aaaa")) for _ in range(20_000))
    assert time.process_time() - begun < 20
    assert len(out) + len(stops.end()) == 80_000
