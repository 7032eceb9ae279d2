"""`kv-gateway key`: a new API key for a client, and its record for the key file."""

import argparse
import sys
from typing import Annotated

import msgspec

from gateway.access.api_keys import (
    NAME,
    ApiKey,
    as_toml,
    hash_of,
    hashable,
    new_key,
)
from gateway.errors import ConfigError
from gateway.settings.options import option
from gateway.settings.reading import read
from gateway.settings.values import whole

FROM_STDIN = "--stdin"
LONGEST = 4096


def key_name(text: str) -> str:
    """A name that a record may have; ValueError."""
    if not NAME.fullmatch(text):
        raise ValueError(
            "is no name of up to 64 letters, digits, dots, dashes and underscores"
        )
    return text


class KeyConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a new record says."""

    name: Annotated[
        str | None,
        option("whose key it is, in logs and metrics", metavar="NAME", parse=key_name),
    ] = None
    requests_per_minute: Annotated[
        int | None,
        option("requests it may send in a minute", metavar="N", parse=whole),
    ] = None
    max_inflight: Annotated[
        int | None,
        option("requests it may have in flight", metavar="N", parse=whole),
    ] = None


def run(arguments: argparse.Namespace) -> int:
    """Print the record, fit to be added to the file, and the key beside it."""
    config = read(KeyConfig, arguments)
    if config.name is None:
        raise ConfigError("--name NAME is missing")
    key = _given() if arguments.stdin else new_key()
    record = ApiKey(
        name=config.name,
        hash=hash_of(key),
        requests_per_minute=config.requests_per_minute,
        max_inflight=config.max_inflight,
    )
    sys.stdout.write(as_toml(record))
    sys.stdout.flush()
    if not arguments.stdin:
        sys.stderr.write(f"the key of {config.name}, kept nowhere: {key}\n")
    return 0


def _given() -> str:
    try:
        return hashable(sys.stdin.readline(LONGEST).strip())
    except ValueError as error:
        raise ConfigError(f"{FROM_STDIN}: {error}") from None
