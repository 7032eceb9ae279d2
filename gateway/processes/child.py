"""One of several processes of a gateway, as its parent starts it.

The parent says by standard input what it is to be, and later, by a line, that clients
may be let in; the end of that input is the end of the parent. On standard output this
process says `up`, then `ready URL`, or `refused WHY`: a line each.
"""

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

from gateway.app import Gateway
from gateway.errors import ConfigError
from gateway.listening import take_port
from gateway.logs import formats as logs
from gateway.processes.task import Task
from gateway.serve import Doors, Leaving, serve

UP, READY, REFUSED = "up", "ready", "refused"


def main() -> int:
    """Be what standard input says; the exit status."""
    try:
        task: Task = pickle.load(sys.stdin.buffer)  # noqa: S301 - of who started it
    except EOFError:  # who is gone already
        return 0
    config = task.config
    logs.set_up(
        config.log_level,
        config.log_format,
        prompts=config.log_prompts,
        process=task.number,
    )
    try:
        return serve(Gateway(config, consumes=task.consumes), config, _doors(task))
    except ConfigError as error:
        _say(REFUSED, str(error))
        return 2
    except KeyboardInterrupt:
        return 130


def _doors(task: Task) -> Doors:
    path = Path(task.path)
    path.unlink(missing_ok=True)  # one before this may have left it
    own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    own.bind(task.path)
    return Doors(
        clients=take_port(task.config.host, task.port, shared=True),
        operators=(own,),
        admitted=partial(_admitted, path=path),
        tell=lambda url: _say(READY, url),
    )


async def _admitted(leaving: Leaving, *, path: Path) -> None:
    """Wait for the parent's word, or for a signal."""
    leash = Leash(leaving, path)
    await asyncio.get_running_loop().connect_read_pipe(lambda: leash, sys.stdin)
    _say(UP)
    word = asyncio.ensure_future(leash.word.wait())
    end = asyncio.ensure_future(leaving.once.wait())
    _, others = await asyncio.wait({word, end}, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()


class Leash(asyncio.Protocol):
    """What the parent says, and that it is gone."""

    def __init__(self, leaving: Leaving, path: Path) -> None:
        """`path` is that of the socket the parent asks by."""
        self.word = asyncio.Event()
        self._leaving = leaving
        self._path = path

    def data_received(self, data: bytes) -> None:
        self.word.set()

    def connection_lost(self, error: Exception | None) -> None:
        """Nobody is left to start others, or to say when to end: leave, or end.

        Nor is anybody left to clear away the sockets: the last takes the directory.
        """
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others are in it
            self._path.parent.rmdir()
        if self._leaving.first is not None:
            os.kill(os.getpid(), signal.SIGTERM)  # which nobody notes any more
        else:
            self._leaving.note(signal.SIGTERM)


def _say(*words: Any) -> None:
    print(*(" ".join(str(word).split()) for word in words), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
