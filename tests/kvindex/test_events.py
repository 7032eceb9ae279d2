"""How an event's untagged extra keys are told apart."""

import msgspec
import pytest

from kvindex.blocks import Namespace
from kvindex.events import MEDIA_KEY_BYTES, media_key, take_apart
from tests.kvindex.engine import stored


def test_nothing_extra() -> None:
    """No keys: the base model's namespace, no media."""
    for keys in (None, (None, None)):
        parts = take_apart(stored(1, 2, extra_keys=keys), "m")
        assert parts.namespace == Namespace(model="m")
        assert parts.media == {}


def test_salt_is_the_string_on_block_0() -> None:
    """The salt names the namespace and is no media key."""
    parts = take_apart(stored(1, 2, extra_keys=(("tenant-a",), None)), "m")
    assert parts.namespace == Namespace(model="m", salt="tenant-a")
    assert parts.media == {}


def test_adapter_is_taken_from_every_block() -> None:
    """Engines list the adapter's name with each block."""
    event = stored(1, 2, adapter="sql", extra_keys=(("sql", "t"), ("sql",)))
    parts = take_apart(event, "m")
    assert parts.namespace == Namespace(model="m", adapter="sql", salt="t")
    assert parts.media == {}


def test_adapter_and_salt_may_be_the_same_word() -> None:
    """Only one of two equal strings is the adapter."""
    parts = take_apart(stored(1, adapter="x", extra_keys=(("x", "x"),)), "m")
    assert parts.namespace == Namespace(model="m", adapter="x", salt="x")


def test_an_adapter_known_by_number_is_not_the_base_model() -> None:
    """Old workers give no name: their blocks must not be taken for the base's."""
    event = msgspec.structs.replace(stored(1), adapter_id=7)
    assert take_apart(event, "m").namespace.adapter not in (None, "7")


def test_media_and_prompt_embeddings_stay_with_their_block() -> None:
    """Pairs and digests are kept in order; a later string is not a salt."""
    keys: tuple[tuple[object, ...] | None, ...] = (
        (["img", 3], "salt", b"digest"),
        (["img", -13],),
        None,
        ("odd",),
    )
    parts = take_apart(stored(1, 2, 3, 4, extra_keys=keys), "m")
    assert parts.namespace.salt == "salt"
    assert {at: msgspec.msgpack.decode(key) for at, key in parts.media.items()} == {
        0: [["img", 3], b"digest"],
        1: [["img", -13]],
        3: ["odd"],
    }


def test_a_continuation_has_no_salt_of_its_own() -> None:
    """Its first block is not block 0."""
    parts = take_apart(stored(2, parent=1, extra_keys=(("x",),)), "m")
    assert parts.namespace.salt is None
    assert parts.media == {0: msgspec.msgpack.encode(["x"])}


def test_extra_keys_without_end_are_refused() -> None:
    """They would be kept in memory that nothing bounds."""
    assert len(media_key(["x" * 4_092])) == MEDIA_KEY_BYTES
    with pytest.raises(ValueError, match="extra keys of 5004"):
        media_key(["x" * 5_000])
