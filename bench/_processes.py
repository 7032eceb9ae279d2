"""Processes a benchmark measures: start one, read its CPU time, end it."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
START_S = 180.0
STOP_S = 15.0


@contextlib.contextmanager
def running(*words: str, quiet: bool = False) -> Iterator[tuple[int, str]]:
    """`python -m WORDS` as (pid, URL), the URL from the line `ready URL` it prints.

    `quiet`: what it logs is not shown.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if quiet else None,
        text=True,
    )
    try:
        yield process.pid, _ready_url(process)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready_url(process: "subprocess.Popen[str]") -> str:
    """What it says once it serves; SystemExit where it does not in time."""
    assert process.stdout is not None
    too_long = threading.Timer(START_S, process.kill)
    too_long.start()
    try:
        for line in process.stdout:
            if line.startswith("ready "):
                return line.split()[1]
    finally:
        too_long.cancel()
    raise SystemExit(f"{process.args!r} did not start")


def free_port() -> int:
    """A port nobody listens on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def cpu_s(pid: int) -> float:
    """CPU seconds the process has used, user and system, all threads (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def waited_s(pid: int) -> float:
    """Seconds the main thread was ready to run and had no processor (Linux)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def resident_mb(pid: int) -> float:
    """Resident memory of a process and all that it started, in MB (Linux)."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            parents[int(status.parent.name)] = int(fields[1])
    family = {pid}
    while more := {child for child, of in parents.items() if of in family} - family:
        family |= more
    return sum(map(_resident_kb, family)) / 1024


def _resident_kb(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the sorted values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
