"""What is replayed: requests, their prompts and times, from a file or a generator."""

import csv
import datetime
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from simworker.simulate.prompts import Prompt, Segment, mixed

MOONCAKE_BLOCK = 512
"""Tokens that one of Mooncake's hash ids stands for."""


class BadWorkload(ValueError):
    """A trace that cannot be read; the text names the file and the line."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request. It comes at `at` seconds, or `gap_s` after the answer to `follows`.

    `answer` names what the answer adds to the prompt, where a later one goes on with
    it; None: what nobody asks for again. `follows` is the request's place in the list.
    """

    prompt: Prompt
    output_tokens: int
    at: float = 0.0
    follows: int | None = None
    gap_s: float = 0.0
    answer: int | None = None


class _Mooncake(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


def mooncake(path: Path) -> list[Asked]:
    """A Mooncake trace: JSON lines, milliseconds, one hash id per 512 tokens.

    Equal ids are equal prompts up to there. Raises BadWorkload.
    """
    decoder = msgspec.json.Decoder(_Mooncake)
    asked = []
    for number, line in enumerate(_lines(path), 1):
        try:
            row = decoder.decode(line)
        except msgspec.DecodeError as error:
            raise BadWorkload(f"{path}, line {number}: {error}") from None
        blocks = -(-row.input_length // MOONCAKE_BLOCK)
        if row.input_length < 1 or len(row.hash_ids) != blocks:
            raise BadWorkload(f"{path}, line {number}: not one hash id per 512 tokens")
        asked.append(
            Asked(
                at=row.timestamp / 1000,
                prompt=tuple(_mooncake_segments(row)),
                output_tokens=max(1, row.output_length),
            )
        )
    return _begun_at_zero(asked, path)


def _mooncake_segments(row: _Mooncake) -> Iterator[Segment]:
    left = row.input_length
    for hash_id in row.hash_ids:
        yield Segment(mixed(hash_id), min(left, MOONCAKE_BLOCK))
        left -= MOONCAKE_BLOCK


def azure(path: Path) -> list[Asked]:
    """An Azure LLM inference trace: CSV of times and lengths; no prompt like another.

    Columns TIMESTAMP, ContextTokens, GeneratedTokens. Raises BadWorkload.
    """
    asked = []
    for number, row in enumerate(csv.DictReader(_text(path)), 2):
        try:
            at = datetime.datetime.fromisoformat(row["TIMESTAMP"]).timestamp()
            tokens, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadWorkload(f"{path}, line {number}: {error}") from None
        prompt = (Segment(mixed(number), max(1, tokens)),)
        asked.append(Asked(at=at, prompt=prompt, output_tokens=max(1, output)))
    return _begun_at_zero(asked, path)


def _begun_at_zero(asked: list[Asked], path: Path) -> list[Asked]:
    if not asked:
        raise BadWorkload(f"{path}: no request in it")
    begun = min(request.at for request in asked)
    ordered = sorted(asked, key=lambda request: request.at)
    return [msgspec.structs.replace(r, at=r.at - begun) for r in ordered]


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from (line for line in file if line.strip())
    except OSError as error:
        raise BadWorkload(f"{path}: {error.strerror}") from None


def _text(path: Path) -> Iterator[str]:
    for line in _lines(path):
        yield line.decode("utf-8-sig", "replace")


def scaled(asked: Iterable[Asked], factor: float) -> list[Asked]:
    """The same requests, arriving `factor` times as fast; pauses of chats stay."""
    return [msgspec.structs.replace(r, at=r.at / factor) for r in asked]
