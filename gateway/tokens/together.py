"""The prompts of one request that are at one worker at the same time.

No prompt may run twice: what fails for one of them may only be tried again, at another
worker or another way, where none was taken.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.errors import ConnectFailed, GatewayError, StaleConnection
from gateway.upstreams.upstream_response import UpstreamResponse
from router.decision import BUSY_STATUSES

T = TypeVar("T")

AT_ONCE = 16
"""Prompts of one request that a worker has at the same time."""
OTHERS_S = 1.0
"""Once a prompt was not taken, the others have this long to be refused as well."""


class RefusedMeanwhile(GatewayError):
    """A worker took one prompt of a request, and not another."""

    status = 502
    type = "upstream_error"
    code = "upstream_refused"


class Refused(Exception):
    """A worker did not take a prompt, and said so.

    `stops`: only as it looks for no stop strings.
    """

    def __init__(self, response: UpstreamResponse, *, stops: bool) -> None:
        super().__init__(response.status)
        self.response = response
        self.stops = stops

    @property
    def busy(self) -> bool:
        """It has no time: another worker may."""
        return self.response.status in BUSY_STATUSES


async def together(count: int, one: Callable[[int], Awaitable[T]]) -> list[T]:
    """What `one` brings of each of `count` prompts; else its first error.

    After an error no prompt is begun. One that lets the request be tried again is
    raised as it is only where no prompt was taken.
    """
    if count == 1:
        return [await one(0)]
    free, begun = asyncio.Semaphore(AT_ONCE), 0

    async def limited(prompt: int) -> T:
        nonlocal begun
        await free.acquire()  # in their order
        begun += 1
        answer = await one(prompt)
        free.release()
        return answer

    tasks = [asyncio.ensure_future(limited(prompt)) for prompt in range(count)]
    try:
        return await asyncio.gather(*tasks)
    except (ConnectFailed, StaleConnection, Refused) as error:
        end(tasks[begun:])
        if is_untaken(error) and not await _none_taken(tasks[:begun]):
            raise _meanwhile(error) from None
        raise
    finally:
        end(tasks)


def end(tasks: list[asyncio.Task[T]]) -> None:
    """Cancel what still runs, and let go of all.

    They have the errors, whose tracebacks have the frame of who waited for them: what
    it kept of them would wait for the collector.
    """
    while tasks:
        tasks.pop().cancel()


def is_untaken(error: BaseException | None) -> bool:
    """Whether it says that nothing was done, and what failed may be tried again."""
    if isinstance(error, Refused):
        return error.busy or error.stops
    return isinstance(error, ConnectFailed | StaleConnection) and error.retryable


async def _none_taken(begun: list[asyncio.Task[T]]) -> bool:
    """Whether all of these were refused, as one was."""
    done, running = await asyncio.wait(begun, timeout=OTHERS_S)
    return not running and all(
        not task.cancelled() and is_untaken(task.exception()) for task in done
    )


def _meanwhile(error: ConnectFailed | StaleConnection | Refused) -> GatewayError:
    """The same where others were taken."""
    if isinstance(error, Refused):
        return RefusedMeanwhile(f"a prompt was answered {error.response.status}")
    error.retryable = False
    return error
