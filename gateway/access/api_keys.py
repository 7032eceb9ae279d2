"""API keys of clients: how one looks, and the file of their records.

The file has a hash of each key, never a key. TOML has a table `[[keys]]` for each, JSON
(a file named `*.json`) an object with an array `keys`; the fields are those of
`ApiKey`. Whose request it is and what it may: keyring.py, client.py.
"""

import hashlib
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from gateway.errors import ConfigError
from gateway.files import content

PREFIX = "kvg-"
SECRET_BYTES = 32
SHORTEST = 24
"""Characters of a key that was not made here. It is hashed once, and quickly, which is
safe only for what nobody can guess."""
MOST_BYTES = 16 * 1024 * 1024

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PLACE = re.compile(r"at line \d+, column \d+|byte \d+")
"""Of a parser's message: where the mistake is, without what is there."""
AboveZero = Annotated[int, msgspec.Meta(ge=1)]


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The record of one key. Without a limit there is none."""

    name: Annotated[str, msgspec.Meta(pattern=rf"\A{NAME.pattern}\Z")]
    """Whose it is, in logs and metrics."""
    hash: Annotated[str, msgspec.Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
    requests_per_minute: AboveZero | None = None
    max_inflight: AboveZero | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: tuple[ApiKey, ...] = ()


def new_key() -> str:
    """A key that nobody can guess: 256 random bits."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def hash_of(key: str) -> str:
    """The hash of a key, as its record has it."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape"))
    return f"sha256:{digest.hexdigest()}"


def hashable(key: str) -> str:
    """A key that was made elsewhere, if it will do; ValueError."""
    if not re.fullmatch(r"[\x21-\x7e]+", key):
        raise ValueError("a key has visible ASCII characters and no blanks")
    if len(key) < SHORTEST:
        raise ValueError(f"a key that cannot be guessed has {SHORTEST} characters")
    return key


def as_toml(record: ApiKey) -> str:
    """A record as it stands in the file."""
    fields = msgspec.structs.asdict(record)
    lines = [
        f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"
        for name, value in fields.items()
        if value is not None
    ]
    return "\n".join(["[[keys]]", *lines, ""])


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """The records of a file; ConfigError, which repeats nothing of it."""
    try:
        text = content(path, MOST_BYTES)
        decode = msgspec.json.decode if path.suffix == ".json" else msgspec.toml.decode
        return _distinct(decode(text, type=_File).keys)
    except OSError as error:
        raise ConfigError(f"--api-keys-file {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--api-keys-file {path}: {_said(error)}") from None


def _distinct(keys: Sequence[ApiKey]) -> tuple[ApiKey, ...]:
    for what in ("name", "hash"):
        seen: set[str] = set()
        for number, key in enumerate(keys, start=1):
            value = getattr(key, what)
            if value in seen:
                raise ValueError(f"record {number} has a {what} that was there before")
            seen.add(value)
    return tuple(keys)


def _said(error: Exception) -> str:
    """What is wrong: msgspec names the field; what TOML's parser says may quote."""
    if isinstance(error, msgspec.ValidationError) or not isinstance(
        error, msgspec.DecodeError | UnicodeDecodeError | RecursionError
    ):
        return str(error)
    where = PLACE.search(str(error))
    at = f" ({where[0]})" if where else ""
    return f"cannot be read as TOML, or as JSON where its name ends in .json{at}"
