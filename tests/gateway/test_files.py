"""Files and pipes are read to their end, and nobody waits for one that has none."""

import os
import threading
from pathlib import Path

import pytest

from gateway import files
from gateway.files import content
from tests.gateway.command import refused

TEXT = b"port = 9\n"


def test_a_file_within_its_bound(tmp_path: Path) -> None:
    """All of it, or nothing."""
    path = tmp_path / "file"
    path.write_bytes(TEXT * 10_000)
    assert content(path, 10_000 * len(TEXT)) == TEXT * 10_000
    with pytest.raises(ValueError, match="has more than 20 bytes"):
        content(path, 20)
    with pytest.raises(ValueError, match="has more than 20 bytes"):
        content("/dev/zero", 20)
    with pytest.raises(IsADirectoryError):
        content(tmp_path, 20)


def test_a_pipe_of_a_shell() -> None:
    """`--config <(command)`: all that was written, though whoever wrote it is gone."""
    reading, writing = os.pipe()
    os.write(writing, TEXT)
    os.close(writing)
    try:
        assert content(f"/dev/fd/{reading}", 100) == TEXT
    finally:
        os.close(reading)


def test_a_named_pipe(tmp_path: Path) -> None:
    """Whoever writes may come later, and write slowly."""
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            file.write(TEXT[:4])
            file.write(TEXT[4:])

    thread = threading.Timer(0.1, write)
    thread.start()
    assert content(path, 100) == TEXT
    thread.join()


def test_a_pipe_that_nobody_writes_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Is a mistake after a moment, whatever file it is taken for."""
    monkeypatch.setattr(files, "READ_S", 0.05)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for option in ("--config", "--workers-file", "--api-keys-file"):
        line = refused(capsys, "--workers", "w1", "--port", "0", option, str(path))
        assert f"{option} {path}: a pipe that nobody writes to the end" in line
