"""Where fingerprints are kept: damaged, not to be written, shared by many."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from render import Renderer, fingerprint_cache, fingerprints
from render.fingerprint import Fingerprint
from render.fingerprint_cache import FingerprintCache
from tests.render.fingerprinting import Child, cache_files, compute


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"{}", b"\xff\x00", b'{"key": "x", "value": {}}',
     b'{"key": KEY}', b'{"key": KEY, "value": []}', b'{"key": KEY, "value": {}}',
     b'{"key": KEY, "value": {"tokenizer": 1}}', b"[" * 100_000, b'"' + b"x" * 2**21],
)  # fmt: skip
def test_a_damaged_cache(tiny: Path, cache: FingerprintCache, content: bytes) -> None:
    """It is as if nothing had been kept, and it is mended."""
    child = Child()
    wanted = compute(tiny, cache, child)
    (file,) = cache_files(cache)
    file.write_bytes(content.replace(b"KEY", json.dumps(file.stem).encode()))
    assert compute(tiny, cache, child) == wanted
    assert child.calls == 2
    assert compute(tiny, cache, child) == wanted
    assert child.calls == 2


@pytest.mark.parametrize("spoil", ["file", "directory", "lock", "nothing"])
def test_no_cache_can_be_kept(tiny: Path, tmp_path: Path, spoil: str) -> None:
    """The directory is a file, an entry or the lock is a directory: computed anew."""
    directory = tmp_path / "cache"
    child = Child()
    cache = FingerprintCache(directory)
    if spoil == "file":
        directory.write_text("")
    elif spoil == "lock":
        (directory / "lock").mkdir(parents=True)
    elif spoil == "directory":
        compute(tiny, cache, child)
        (file,) = cache_files(cache)
        file.unlink()
        file.mkdir()
    child.calls = 0
    for _ in range(2):
        assert compute(tiny, cache, child).digest is not None
    assert child.calls == {"file": 2, "directory": 2, "lock": 1, "nothing": 1}[spoil]
    assert not list(directory.glob(".*.part"))


def test_the_cache_is_bounded(
    cache: FingerprintCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest entries go, and what killed processes left."""
    monkeypatch.setattr(fingerprint_cache, "KEPT", 5)
    cache.put("first", {})
    left = cache._directory / ".killed.part"
    left.write_text("half")
    os.utime(left, (1, 1))
    for number in range(20):
        cache.put(f"n{number}", {"number": number})
        file = cache._directory / f"n{number}.json"
        os.utime(file, (10 + number, 10 + number))
    assert len(cache_files(cache)) == 5
    assert cache.get("n19") == {"number": 19}
    assert cache.get("n0") is None
    assert not left.exists()


def test_threads_at_once(tiny: Path, cache: FingerprintCache) -> None:
    """The others wait for the first, and find what it kept."""

    class Slow(Child):
        def __call__(self, *args: Any) -> dict[str, Any]:
            time.sleep(0.3)
            return super().__call__(*args)

    child = Slow()
    renderer = Renderer.load(tiny)
    found: list[Fingerprint] = []

    def run() -> None:
        found.append(fingerprints.compute(renderer, cache=cache, child=child))

    threads = [threading.Thread(target=run) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert child.calls == 1
    assert len({f.digest for f in found}) == 1


def test_processes_at_once(tiny: Path, tmp_path: Path) -> None:
    """One of two starts the child; both have the digest."""
    code = (
        "import os, pathlib, sys; from render import Renderer, fingerprints\n"
        "def child(model, tokenizer, until):\n"
        "    pathlib.Path(sys.argv[2], str(os.getpid())).touch()\n"
        "    return fingerprints.run_child(model, tokenizer, until)\n"
        "r = Renderer.load(sys.argv[1])\n"
        "print(fingerprints.compute(r, child=child).digest)\n"
    )
    ran = tmp_path / "ran"
    ran.mkdir()
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", code, str(tiny), str(ran)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        for _ in range(2)
    ]
    digests = {process.communicate(timeout=50)[0] for process in processes}
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64
    assert len(list(ran.iterdir())) == 1
    kept = tmp_path / "home" / "kv-gateway" / "fingerprints"
    assert len(list(kept.glob("*.json"))) == 1


def test_another_process_that_hangs(
    tiny: Path, cache: FingerprintCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not waited for without end."""
    monkeypatch.setattr(fingerprint_cache, "WAIT_S", 0.3)
    with cache.alone(lambda: False):
        assert compute(tiny, cache, Child()).digest is not None


def test_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the XDG rules say: a relative one does not count."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fingerprint_cache.user_cache_dir() == tmp_path / "kv-gateway"
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fingerprint_cache.user_cache_dir() == tmp_path / ".cache" / "kv-gateway"
