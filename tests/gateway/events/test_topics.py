"""Whose topic is it: as declared, else by the address in it."""

import pytest

from gateway.events.topics import Topics

URLS = (
    "http://w1:8000",
    "http://10.0.0.7:8000",
    "http://10.0.0.7:8001",
    "http://[fd00::1]:8000",
)


@pytest.mark.parametrize(
    ("topic", "url"),
    [
        ("odd topic", "http://w1:8000"),
        ("kv@w1:8000@org/model", "http://w1:8000"),
        ("kv@W1:8000@org/model", "http://w1:8000"),
        ("kv@w1@org/model", "http://w1:8000"),
        ("kv@10.0.0.7:8001@a@b", "http://10.0.0.7:8001"),
        ("kv@10.0.0.7@m", None),  # two workers there
        ("kv@[fd00::1]:8000@m", "http://[fd00::1]:8000"),
        ("kv@w2:8000@m", None),
        ("kv@w1:8000", "http://w1:8000"),
        ("kv@", None),
        ("", None),
        ("w1:8000", None),
        ("kv@10.0.0.7:8000@moved", "http://w1:8000"),
    ],
)
def test_topics(topic: str, url: str | None) -> None:
    """What is declared wins; an address without port must be one worker's only."""
    declared = {
        "odd topic": "http://w1:8000",
        "kv@10.0.0.7:8000@moved": "http://w1:8000",
    }
    assert Topics(declared, URLS).url(topic) == url


def test_what_is_told() -> None:
    """Counts where nothing is declared, no address says otherwise, and one tells it."""
    topics = Topics({"mine": "http://w1:8000"}, URLS)
    told = frozenset({"", "mine", "kv@w1@m", "kv@pod-7@m"})
    topics.tell("http://10.0.0.7:8000", told)
    found = [topics.url(topic) for topic in ("", "mine", "kv@w1@m", "kv@pod-7@m", "a")]
    own, other = "http://10.0.0.7:8000", "http://w1:8000"
    assert found == [own, other, other, own, None]
    topics.tell("http://10.0.0.7:8001", frozenset({""}))
    assert topics.url("") is None
    assert set(topics.tellers("")) == {own, "http://10.0.0.7:8001"}
    assert topics.url("kv@pod-7@m") == own
    topics.know(URLS[:2])  # the other one is gone
    assert topics.url("") == own
    topics.tell(own, frozenset())
    assert topics.url("") is None
