"""The demo's model directory is unpacked once, whole, and repaired if damaged."""

import hashlib
import json
import multiprocessing
import tempfile
from pathlib import Path

import pytest

from simworker.model import SHA256, demo_model_dir


def test_unpacks_the_files_unchanged(tmp_path: Path) -> None:
    """The files have the hashes named in the licence note."""
    directory = demo_model_dir(tmp_path)
    for name, digest in SHA256.items():
        content = (directory / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
    config = json.loads((directory / "config.json").read_bytes())
    assert config["model_type"] == "qwen3"
    assert config["max_position_embeddings"] == 40960


def test_second_call_finds_it(tmp_path: Path) -> None:
    """A second call returns the same directory without writing anything."""
    first = demo_model_dir(tmp_path)
    before = (first / "tokenizer.json").stat().st_mtime_ns
    assert demo_model_dir(tmp_path) == first
    assert (first / "tokenizer.json").stat().st_mtime_ns == before
    assert list(tmp_path.iterdir()) == [first]


@pytest.mark.parametrize("damage", ["truncated", "missing", "a file"])
def test_damage_is_repaired(tmp_path: Path, damage: str) -> None:
    """A truncated, missing or misplaced file is replaced by the right one."""
    directory = demo_model_dir(tmp_path)
    if damage == "truncated":
        (directory / "tokenizer.json").write_bytes(b"{")
    else:
        (directory / "tokenizer.json").unlink()
    if damage == "a file":
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
        directory.write_bytes(b"")
    assert demo_model_dir(tmp_path) == directory
    content = (directory / "tokenizer.json").read_bytes()
    assert hashlib.sha256(content).hexdigest() == SHA256["tokenizer.json"]
    assert list(tmp_path.iterdir()) == [directory]


def test_several_processes_at_once(tmp_path: Path) -> None:
    """Four processes that start together all get the one whole directory."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        found = pool.map(demo_model_dir, [tmp_path] * 4)
    assert len(set(found)) == 1
    assert list(tmp_path.iterdir()) == [found[0]]


def test_falls_back_to_a_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the user's cache cannot be written a temporary directory serves."""
    blocker = tmp_path / "not-a-directory"
    blocker.write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    directory = demo_model_dir()
    assert directory.parent.parent == tmp_path
    assert (directory / "tokenizer.json").is_file()


def test_user_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_CACHE_HOME names the place."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert demo_model_dir().parent == tmp_path / "kv-gateway"
