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
