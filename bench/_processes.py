"""Processes a benchmark measures: start one, read its CPU time, end it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(*words: str) -> Iterator[tuple[int, str]]:
    """`python -m WORDS` as (pid, URL), the URL from the line `ready URL` it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready "):
                break
        else:
            raise SystemExit(f"{' '.join(words)} did not start")
        yield process.pid, line.split()[1]
    finally:
        process.terminate()
        process.wait(10)


def cpu_s(pid: int) -> float:
    """CPU seconds the process has used, user and system, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the sorted values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
