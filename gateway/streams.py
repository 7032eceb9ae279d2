"""The standard streams of this process, which whoever started it may have left closed.

The next file or connection that is opened would take the place of a closed one, and get
what libraries write to it. A disk behind them may be full, a reader gone. Log lines
have a writer of their own: logs/writing.py.
"""

import logging
import os
import sys
from typing import TextIO

log = logging.getLogger(__name__)

STANDARD = 3
"""Standard input, output and error are the first of all open files."""


def hold_places() -> None:
    """Have something open at each place: what nobody takes goes nowhere."""
    while (place := os.open(os.devnull, os.O_RDWR)) < STANDARD:
        os.set_inheritable(place, True)  # processes of ours have the same places
    os.close(place)
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()


def say(line: str) -> None:
    """A line for whoever started this process; if nobody takes it, all goes on."""
    try:
        print(line, flush=True)  # noqa: T201 - for whoever started it
    except OSError as error:
        log.warning("standard output takes nothing: %s", error.strerror)
        sys.stdout = _nowhere()  # the old one would be tried again at the end


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")
