"""Where fingerprints are kept between runs: small files in the user's cache directory.

What cannot be kept is computed again: no fault of the directory is an error here.
"""

import contextlib
import fcntl
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

KEPT = 256
"""Entries; the oldest go first."""
LARGEST = 1 << 20
"""Bytes of an entry that is read; ours have 1 or 2 KB."""
RETRY_S = 0.05
WAIT_S = 30.0
"""The longest wait for another process: it may hang."""


def user_cache_dir() -> Path:
    """`kv-gateway` under `$XDG_CACHE_HOME`, else under `~/.cache`."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(configured):
        return Path(configured) / "kv-gateway"
    return Path(os.path.expanduser("~")) / ".cache" / "kv-gateway"


class FingerprintCache:
    """JSON objects by key, shared by all processes of this user."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, key: str) -> dict[str, Any] | None:
        """What was kept under a key; None if there is nothing that can be read."""
        try:
            with self._path(key).open("rb") as file:
                entry = json.loads(file.read(LARGEST))
        except (OSError, ValueError, RecursionError):
            return None
        whole = isinstance(entry, dict) and entry.get("key") == key
        value = entry.get("value") if whole else None
        return value if isinstance(value, dict) else None

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Keep a value: whole, or not at all."""
        entry = json.dumps({"key": key, "value": value})
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._write(entry, self._path(key))
            self._drop_oldest()
        except OSError as error:
            log.info("fingerprints are not kept in %s: %s", self._directory, error)

    def _write(self, entry: str, path: Path) -> None:
        with tempfile.NamedTemporaryFile(
            "w", dir=self._directory, prefix=".", suffix=".part", delete=False
        ) as file:
            part = Path(file.name)
            file.write(entry)
        try:
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)  # nothing, once it is in place

    @contextlib.contextmanager
    def alone(self, until: Callable[[], bool]) -> Iterator[None]:
        """Wait for others that compute, for `WAIT_S` or until `until()`; then go on.

        So that many that start at once do it once.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                self._directory.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context((self._directory / "lock").open("w"))
                _lock(lock.fileno(), until)
            yield

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}.json"

    def _drop_oldest(self) -> None:
        """Bound the number of entries, and remove what a killed process left."""
        files = [*self._directory.glob("*.json"), *self._directory.glob(".*.part")]
        if len(files) <= KEPT:
            return
        files.sort(key=_changed)
        for file in files[: len(files) - KEPT]:
            file.unlink(missing_ok=True)


def _lock(file: int, until: Callable[[], bool]) -> None:
    """Lock a file; closing it, or the end of the process, unlocks it."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and not until():
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(RETRY_S)


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # another process dropped it
        return 0.0
