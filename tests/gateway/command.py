"""Running our commands: in this process to be refused, or as a process that serves."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.cli import main


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which a command line is refused."""
    try:
        status = main(words)
    except SystemExit as end:
        status = int(end.code or 0)
    output = capsys.readouterr()
    assert status == 2
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert output.err.endswith("\n")
    return output.err


@contextmanager
def serving(*words: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`python -m gateway` as a process, and its URL once it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = re.fullmatch(r"ready (http://127\.0\.0\.1:\d+)\n", line)
            assert ready, line
            yield process, ready[1]
        finally:
            process.kill()
