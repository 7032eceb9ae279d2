"""What is replayed: requests, their prompts and times, from a file or a generator."""

import codecs
import csv
import datetime
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from simworker.simulate.prompts import Prompt, Segment, mixed

LONGEST = 10_000_000
"""Tokens of a prompt or an answer: a larger number is a mistake in a file."""
MOONCAKE_BLOCK = 512
"""Tokens that one of Mooncake's hash ids stands for."""
AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class BadWorkload(ValueError):
    """A trace that cannot be read; the text names the file and the line."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request. It comes at `at` seconds, or `gap_s` after the answer to `follows`.

    `answer` names what the answer adds to the prompt, where a later one goes on with
    it; None: what nobody asks for again. `follows` is the request's place in the list.
    `session` is what the client would say it belongs to.
    """

    prompt: Prompt
    output_tokens: int
    at: float = 0.0
    follows: int | None = None
    gap_s: float = 0.0
    answer: int | None = None
    session: str | None = None


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
    for number, line in _lines(path):
        try:
            row = decoder.decode(line)
            if row.input_length < 1:
                raise ValueError(f"a prompt of {row.input_length} tokens is none")
            if len(row.hash_ids) != -(-row.input_length // MOONCAKE_BLOCK):
                raise ValueError("not one hash id per 512 tokens")
            output_tokens = _count(row.output_length)
        except ValueError as error:
            raise BadWorkload(f"{path}, line {number}: {error}") from None
        asked.append(
            Asked(
                at=row.timestamp / 1000,
                prompt=tuple(_mooncake_segments(row)),
                output_tokens=output_tokens,
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

    Its columns are `AZURE_COLUMNS`, and others. Raises BadWorkload.
    """
    asked = []
    columns: list[str] = []
    for number, line in _lines(path):
        try:
            cells = _cells(line)
            if not columns:
                columns = cells
                continue
            row = dict(zip(columns, cells, strict=False))
            at, tokens, output = (_cell(row, name) for name in AZURE_COLUMNS)
            request = Asked(
                at=_seconds(at),
                prompt=(Segment(mixed(number), _count(tokens)),),
                output_tokens=_count(output),
            )
        except (ValueError, csv.Error) as error:
            raise BadWorkload(f"{path}, line {number}: {error}") from None
        asked.append(request)
    return _begun_at_zero(asked, path)


def _cells(line: bytes) -> list[str]:
    text = line.decode("utf-8", "replace").strip()
    return [cell.strip() for cell in next(csv.reader([text], strict=False), [])]


def _cell(row: dict[str, str], name: str) -> str:
    if name not in row:
        raise ValueError(f"there is no {name}")
    return row[name]


def _seconds(text: str) -> float:
    """A time without a zone is UTC: only differences count."""
    when = datetime.datetime.fromisoformat(text)
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return when.timestamp()


def _count(value: int | str) -> int:
    """A number of tokens, at least one; what is told as 0 had one."""
    count = int(value)
    if count < 0:
        raise ValueError(f"{value} tokens are fewer than none")
    if count > LONGEST:
        raise ValueError(f"{value} tokens are too many")
    return max(1, count)


def _begun_at_zero(asked: list[Asked], path: Path) -> list[Asked]:
    if not asked:
        raise BadWorkload(f"{path}: no request in it")
    begun = min(request.at for request in asked)
    ordered = sorted(asked, key=lambda request: request.at)
    return [msgspec.structs.replace(r, at=r.at - begun) for r in ordered]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that say something, and their numbers from 1; no byte order mark."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if line.strip():
                    yield number, line
    except OSError as error:
        raise BadWorkload(f"{path}: {error.strerror}") from None


def scaled(asked: Iterable[Asked], factor: float) -> list[Asked]:
    """The same requests, arriving `factor` times as fast; pauses of chats stay."""
    return [msgspec.structs.replace(r, at=r.at / factor) for r in asked]
