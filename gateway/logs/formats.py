"""How log lines look: as text or as JSON, one line each, and without text of prompts.

An exception's own message may repeat what a client sent. Of those that come with a
stack trace only the system's (OSError) and ours are told; of others it is withheld,
unless `--log-prompts` allows text of prompts in the log.
"""

import logging
import sys
import time
import traceback
from typing import Literal

import msgspec

from gateway.errors import ConfigError
from gateway.logs.writing import LineWriter

LogFormat = Literal["text", "json"]
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TOLD = (OSError, ConfigError)
"""Exceptions whose messages speak of files, sockets and options."""
WITHHELD = "(message withheld: it may hold text of a request)"
BEGIN = "Traceback (most recent call last):"
MOST = 10
"""Exceptions of one chain that are told."""


def set_up(
    level: str,
    form: LogFormat,
    *,
    prompts: bool = False,
    process: int | None = None,
) -> None:
    """Log to stderr from now on; `prompts`: text of prompts may be logged.

    Lines name the `process`, where a gateway has several.
    """
    handler = LineWriter(sys.stderr)
    lines = JsonLines if form == "json" else TextLines
    handler.setFormatter(lines(prompts=prompts, process=process))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())


class TextLines(logging.Formatter):
    """A line of text; below it a stack trace, should there be one."""

    def __init__(self, *, prompts: bool = False, process: int | None = None) -> None:
        named = "" if process is None else f"process {process} "
        super().__init__(TEXT.replace("%(name)s", f"{named}%(name)s"))
        self._prompts = prompts

    def formatException(self, ei: object) -> str:
        return _trace(ei, prompts=self._prompts)


class JsonLines(logging.Formatter):
    """A JSON object on one line; the fields of an access line are its own."""

    def __init__(self, *, prompts: bool = False, process: int | None = None) -> None:
        super().__init__()
        self._prompts = prompts
        self._named = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._named,
        }
        fields = getattr(record, "fields", None)
        if fields is None:
            fields = {"message": _sayable(record.getMessage())}
        line |= fields
        if record.exc_info:
            trace = _trace(record.exc_info, prompts=self._prompts)
            line["trace"] = _sayable(trace)
        return msgspec.json.encode(line).decode()


def _sayable(text: str) -> str:
    """A text without what UTF-8 has no way to say."""
    return text.encode("utf-8", "backslashreplace").decode()


def _time(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def _trace(failure: object, *, prompts: bool) -> str:
    """A stack trace, and of its exceptions the messages that may be told."""
    error = failure[1] if isinstance(failure, tuple) else None
    if not isinstance(error, BaseException):
        return ""
    return "\n".join(_told(one, prompts=prompts) for one in reversed(_chain(error)))


def _chain(error: BaseException) -> list[BaseException]:
    """An exception and those it came of or brings along, the last one first."""
    chain: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(chain) < MOST:
        one = waiting.pop(0)
        if one is not None and one not in chain:
            chain.append(one)
            before = None if one.__suppress_context__ else one.__context__
            waiting += [one.__cause__ or before, *getattr(one, "exceptions", ())]
    return chain


def _told(error: BaseException, *, prompts: bool) -> str:
    kind = type(error)
    message = str(error) if prompts or isinstance(error, TOLD) else WITHHELD
    stack = "".join(traceback.format_tb(error.__traceback__))
    return f"{BEGIN}\n{stack}{kind.__module__}.{kind.__qualname__}: {message}"
