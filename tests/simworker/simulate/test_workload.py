"""Traces, as they are found and as they are broken."""

from pathlib import Path

import pytest

from simworker.simulate.prompts import BlockCutter, length
from simworker.simulate.workload import LONGEST, BadWorkload, azure, mooncake, scaled

MOONCAKE = (
    '{"timestamp": 2000, "input_length": 600, "output_length": 9, "hash_ids": [0, 1]}\n'
    '{"timestamp": 1000, "input_length": 700, "output_length": 0, "hash_ids": [0, 2]}\n'
)
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,396,109\n"
)


def written(path: Path, text: str | bytes) -> Path:
    """A file of that text."""
    file = path / "trace"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_mooncake(tmp_path: Path, newline: str, mark: bytes) -> None:
    """In the order of time from 0; equal ids are equal blocks; a mark is none."""
    text = mark + MOONCAKE.replace("\n", newline).encode()
    first, second = mooncake(written(tmp_path, text))
    assert (first.at, second.at) == (0.0, 1.0)
    assert (length(first.prompt), length(second.prompt)) == (700, 600)
    assert (first.output_tokens, second.output_tokens) == (1, 9)
    cutter = BlockCutter(64)
    one, other = cutter.blocks(first.prompt), cutter.blocks(second.prompt)
    assert one[:8] == other[:8]
    assert one[8:9] != other[8:9]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_azure(tmp_path: Path, newline: str, mark: bytes) -> None:
    """Times since the first; no prompt like another; a byte order mark is none."""
    text = mark + AZURE.replace("\n", newline).encode()
    first, second = azure(written(tmp_path, text))
    assert second.at - first.at == pytest.approx(4.314579, abs=1e-5)
    assert (length(first.prompt), second.output_tokens) == (374, 109)
    cutter = BlockCutter(64)
    assert not set(cutter.blocks(first.prompt)) & set(cutter.blocks(second.prompt))


def test_azure_with_more_columns_in_another_order(tmp_path: Path) -> None:
    """Columns go by their names."""
    text = "x,GeneratedTokens,TIMESTAMP,ContextTokens\n1,7,2024-01-01T00:00:00Z,99\n"
    (only,) = azure(written(tmp_path, text))
    assert (only.output_tokens, length(only.prompt)) == (7, 99)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (MOONCAKE + "nonsense\n", "line 3: JSON is malformed"),
        ("\n\n" + MOONCAKE + "\n{}\n", "line 6: Object missing required field"),
        (MOONCAKE.replace("600", "1600"), "line 1: not one hash id per 512 tokens"),
        (MOONCAKE.replace("600", "0"), "line 1: a prompt of 0 tokens is none"),
        (MOONCAKE.replace("600", "-600"), "line 1: a prompt of -600 tokens is none"),
        (MOONCAKE.replace("9", "-9"), "line 1: -9 tokens are fewer than none"),
        (MOONCAKE.replace("9", "9" * 12), "line 1: 999999999999 tokens are too many"),
        (MOONCAKE.replace("600", '"x"'), "line 1: Expected `int`"),
        (b"\xff\xfe" + MOONCAKE.encode("utf-16-le"), "line 1: "),
        ("", "no request in it"),
    ],
)
def test_bad_mooncake(tmp_path: Path, text: str | bytes, line: str) -> None:
    """The error names the file and the line."""
    file = written(tmp_path, text)
    with pytest.raises(BadWorkload) as error:
        mooncake(file)
    assert str(error.value).startswith(str(file))
    assert line in str(error.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (AZURE.replace("374", "many"), "line 2: invalid literal"),
        (AZURE.replace("\n2023-11-16 18:15:50", "\n\n\nsoon"), "line 5: Invalid iso"),
        (AZURE.replace("TIMESTAMP", "WHEN"), "line 2: there is no TIMESTAMP"),
        (AZURE.replace(",109", ""), "line 3: there is no GeneratedTokens"),
        (AZURE.replace("374", str(LONGEST + 1)), "line 2: 10000001 tokens are too"),
        (AZURE.replace("374", "-374"), "line 2: -374 tokens are fewer than none"),
        (AZURE.replace("109", "-1"), "line 3: -1 tokens are fewer than none"),
        (AZURE.replace("374", '"3\x0074'), "line 2: "),
        (AZURE.replace("374", "3\r74"), "line 2: new-line character"),
        (AZURE.replace("\n", "\r"), "line 1: new-line character"),
        (AZURE.replace("374", "3" * 200_000), "line 2: field larger than"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no request in it"),
        ("", "no request in it"),
    ],
)
def test_bad_azure(tmp_path: Path, text: str, line: str) -> None:
    """The error names the file and the line."""
    file = written(tmp_path, text)
    with pytest.raises(BadWorkload) as error:
        azure(file)
    assert str(error.value).startswith(str(file))
    assert line in str(error.value)


@pytest.mark.parametrize("read", [mooncake, azure])
def test_files_that_cannot_be_read(tmp_path: Path, read: object) -> None:
    """Missing, or a directory."""
    assert callable(read)
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(BadWorkload, match=str(path)):
            read(path)


def test_arrivals_are_divided(tmp_path: Path) -> None:
    """Twice as fast: half of the time."""
    asked = mooncake(written(tmp_path, MOONCAKE))
    assert [request.at for request in scaled(asked, 2.0)] == [0.0, 0.5]
