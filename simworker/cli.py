"""`kv-gateway sim-worker`: one simulated worker as a process.

Heavy imports happen in `run`, so that building the parser stays cheap.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from typing import NoReturn

from simworker.arguments import add_arguments, from_args
from simworker.options import BadOptions, SimOptions

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; the exit status: 2 for what cannot start."""
    import uvloop

    from render import ModelNotFound
    from simworker.answers import BadAnswers

    try:
        uvloop.run(_serve(from_args(args)))
    except (BadOptions, BadAnswers, ModelNotFound) as error:
        sys.stderr.write(f"kv-gateway sim-worker: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"kv-gateway sim-worker: cannot listen: {error}\n")
        return 2
    _leave()


def _leave() -> NoReturn:
    """End the process at once: a request that is still planned keeps its thread."""
    sys.stdout.flush()
    os._exit(0)


async def _serve(options: SimOptions) -> None:
    from simworker.server import SimWorker

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    worker = SimWorker(options)
    await worker.start()
    sys.stdout.write(f"ready {worker.url}\n")
    sys.stdout.flush()
    await stopped.wait()
    await worker.stop()
