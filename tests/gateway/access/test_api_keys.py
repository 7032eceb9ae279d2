"""Keys, their hashes, and the file of their records."""

import json
from pathlib import Path

import pytest

from gateway.access.api_keys import (
    ApiKey,
    as_toml,
    hash_of,
    hashable,
    new_key,
    read_keys,
)
from gateway.errors import ConfigError

HASH = hash_of("kvg-abc")
OTHER_HASH = hash_of("kvg-abd")


def test_keys_are_random() -> None:
    """256 bits each, recognisable in a leak by how they begin."""
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith("kvg-") and len(key) == 47 for key in keys)


def test_the_hash_is_what_sha256sum_says() -> None:
    """Whoever has the key can make its record by other means."""
    assert hash_of("abc") == (
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_records_are_read_as_they_are_printed(tmp_path: Path) -> None:
    """One after the other in one file."""
    records = (
        ApiKey(name="team-a", hash=HASH, requests_per_minute=60, max_inflight=4),
        ApiKey(name="b.2", hash=OTHER_HASH),
    )
    path = tmp_path / "keys.toml"
    path.write_text("".join(map(as_toml, records)))
    assert read_keys(path) == records
    as_json = tmp_path / "keys.json"
    listed = [{"name": "team-a", "hash": HASH, "max_inflight": 4}]
    as_json.write_text(json.dumps({"keys": listed}))
    assert read_keys(as_json) == (ApiKey(name="team-a", hash=HASH, max_inflight=4),)


def test_an_empty_file_lets_nobody_in(tmp_path: Path) -> None:
    """It has no keys; that is no mistake."""
    path = tmp_path / "keys.toml"
    path.write_text("")
    assert read_keys(path) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('keys = "x"', "array"),
        ('[[keys]]\nname = "a"', "hash"),
        (f'[[keys]]\nname = "a b"\nhash = "{HASH}"', "name"),
        (f'[[keys]]\nname = "a\\n"\nhash = "{HASH}"', "name"),
        ('[[keys]]\nname = "a"\nhash = "kvg-a-key-in-the-clear"', "hash"),
        (f'[[keys]]\nname = "a"\nhash = "{HASH}"\nlimit = 1', "limit"),
        (f'[[keys]]\nname = "a"\nhash = "{HASH}"\nmax_inflight = 0', "max_inflight"),
        (f'[[keys]]\nname = "a"\nhash = "{HASH}"\nmax_inflight = true', "max_inflight"),
        (
            f'[[keys]]\nname = "a"\nhash = "{HASH}"\n'
            f'[[keys]]\nname = "a"\nhash = "{OTHER_HASH}"',
            "record 2 has a name that was there before",
        ),
        (
            f'[[keys]]\nname = "a"\nhash = "{HASH}"\n'
            f'[[keys]]\nname = "b"\nhash = "{HASH}"',
            "record 2 has a hash that was there before",
        ),
        ("kvg-a-key-in-the-clear [", r"json \(at line 1, column 24\)"),
        ("\udcff", "cannot be read as TOML"),
    ],
)
def test_mistakes_are_named_and_not_repeated(
    tmp_path: Path, text: str, said: str
) -> None:
    """One line with the field; never what may be a key."""
    path = tmp_path / "keys.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=said) as refused:
        read_keys(path)
    assert "\n" not in str(refused.value)
    assert "kvg-" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Named, with the reason."""
    with pytest.raises(
        ConfigError, match=r"--api-keys-file .*none\.toml: No such file"
    ):
        read_keys(tmp_path / "none.toml")


@pytest.mark.parametrize("key", ["short", "x" * 23, "with a blank in the middle", ""])
def test_keys_that_could_be_guessed(key: str) -> None:
    """A quick hash is for long random keys only."""
    with pytest.raises(ValueError, match="a key"):
        hashable(key)
    assert hashable("x" * 24) == "x" * 24
