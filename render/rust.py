"""Calling libraries that are written in Rust."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class RustFailed(Exception):
    """A library written in Rust failed."""


def rust(call: Callable[[], T]) -> T:
    """Call into a library written in Rust; raises RustFailed.

    A panic there arrives as a BaseException, past every `except Exception`.
    """
    try:
        return call()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:200]
        raise RustFailed(reason or type(error).__name__) from error
