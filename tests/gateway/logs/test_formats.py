"""How log lines look, and which messages of exceptions they withhold."""

import contextlib
import io
import logging
import re
from collections.abc import Iterator

import msgspec
import pytest

from gateway.errors import ConfigError
from gateway.logs import formats

log = logging.getLogger("gateway.test")
SECRET = "what the client wrote"


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger; afterwards it is as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield root
    root.handlers, root.level = handlers, level


def _logged(
    root: logging.Logger,
    form: formats.LogFormat,
    error: BaseException | None = None,
    *,
    prompts: bool = False,
) -> str:
    """What is written for one line, with the trace of an exception if there is one."""
    written = io.StringIO()
    with contextlib.redirect_stderr(written):
        formats.set_up("info", form, prompts=prompts)
    log.debug("not at this level")
    log.warning("worker %s is\nsilent", "w1", exc_info=error)
    root.handlers[0].flush()
    return written.getvalue()


def _raised(error: Exception, cause: Exception | None = None) -> Exception:
    """The exception, raised here."""
    try:
        if cause is None:
            raise error
        raise error from _raised(cause)
    except Exception as caught:
        return caught


def test_text(root: logging.Logger) -> None:
    """Time, level, logger, message."""
    line = _logged(root, "text")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING gateway\.test: "
        r"worker w1 is\nsilent\n",
        line,
    )


def test_json(root: logging.Logger) -> None:
    """One object on one line, whatever is in the message."""
    written = _logged(root, "json", _raised(OSError("no such file")))
    assert written.count("\n") == 1
    line = msgspec.json.decode(written)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    trace = line.pop("trace")
    assert line == {
        "level": "warning",
        "logger": "gateway.test",
        "message": "worker w1 is\nsilent",
    }
    assert trace.startswith("Traceback (most recent call last):\n")
    assert trace.endswith("OSError: no such file")


def test_what_utf8_cannot_say() -> None:
    """Half a character is told as what it is; the line is whole."""
    args = ("name", logging.INFO, "path", 1, "half \ud83d of %s", ("one",), None)
    line = msgspec.json.decode(formats.JsonLines().format(logging.LogRecord(*args)))
    assert line["message"] == "half \\ud83d of one"


@pytest.mark.parametrize("form", ["text", "json"])
def test_messages_that_may_quote_a_client(
    root: logging.Logger, form: formats.LogFormat
) -> None:
    """Kind and place of an exception are told, also of its causes; not its message."""
    error = _raised(KeyError(SECRET), ValueError(f"bad: {SECRET}"))
    group = _raised(ExceptionGroup(SECRET, [error]))
    for failure in (error, group):
        written = _logged(root, form, failure)
        assert SECRET not in written
        assert "builtins.KeyError: (message withheld" in written
        assert "builtins.ValueError: (message withheld" in written
        assert "test_formats.py" in written
        assert SECRET in _logged(root, form, failure, prompts=True)


@pytest.mark.parametrize("error", [OSError("disk is full"), ConfigError("--model x")])
def test_messages_that_cannot(root: logging.Logger, error: Exception) -> None:
    """The system's and those of options are told."""
    assert str(error) in _logged(root, "text", _raised(error))


def test_a_chain_without_end(root: logging.Logger) -> None:
    """Exceptions that name each other, or very many, end somewhere."""
    error = _raised(ValueError("a"))
    error.__context__ = other = KeyError("b")
    other.__context__ = error
    assert _logged(root, "text", error).count("Traceback") == 2
    for number in range(50):
        error = _raised(ValueError(str(number)), error)
    assert _logged(root, "text", error).count("Traceback") == formats.MOST
