"""Running `fingerprint_process.py`: for a bounded time, and killed when told to."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

MODULE = "render.fingerprint_process"
POLL_S = 0.1
SHOWN = 300
"""Characters of what a failed process said."""
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class NoFingerprint(Exception):
    """A model that cannot be fingerprinted; the message is one line."""


class Deadline:
    """When a computation gives up: after some time, or when it is told to stop."""

    def __init__(self, seconds: float, stopped: threading.Event | None = None) -> None:
        self._end = time.monotonic() + seconds
        self._seconds = seconds
        self._stopped = stopped or threading.Event()

    def passed(self) -> bool:
        """Whether it is over."""
        return self._stopped.is_set() or time.monotonic() >= self._end

    @property
    def reason(self) -> str:
        """Why it is over."""
        if self._stopped.is_set():
            return "stopped"
        return f"not done after {self._seconds:g} s"


def run_child(model: Path, tokenizer: Path, deadline: Deadline) -> dict[str, Any]:
    """What the process tells of two directories; raises NoFingerprint."""
    command = [sys.executable, "-m", MODULE]
    try:
        process = subprocess.Popen(  # noqa: S603 - our own
            [*command, str(model.absolute()), str(tokenizer.absolute())],
            cwd=Path(__file__).parent.parent,
            env=os.environ | OFFLINE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise NoFingerprint(f"no process can be started: {error}") from error
    with process:
        out, err = _communicate(process, deadline)
    if process.returncode != 0:
        raise NoFingerprint(_last_line(err) or f"exit status {process.returncode}")
    try:
        told: dict[str, Any] = msgspec.json.decode(out, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise NoFingerprint(f"the process told no JSON: {error}") from error
    return told


def _communicate(
    process: subprocess.Popen[bytes], deadline: Deadline
) -> tuple[bytes, bytes]:
    """What it wrote; it is killed, and NoFingerprint raised, when time is up."""
    try:
        while not deadline.passed():
            try:
                return process.communicate(timeout=POLL_S)
            except subprocess.TimeoutExpired:
                continue
    finally:
        process.kill()  # nothing, once it has ended
    raise NoFingerprint(deadline.reason)


def _last_line(err: bytes) -> str:
    lines = err.decode(errors="replace").strip().splitlines()
    return lines[-1][:SHOWN] if lines else ""
