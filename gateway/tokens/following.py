"""An engine's stream of ids read to its end, or to where no more of it is wanted.

What is in the events is not looked at here.
"""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.errors import MalformedAnswer, UpstreamReset
from gateway.request.sse import WholeEvents
from gateway.upstreams.upstream_response import UpstreamResponse

LAST_WORDS_S = 2.0
"""How long an engine may take to end its stream once nothing is missing but usage."""
LONGEST_EVENT = 16 * 1024 * 1024
"""Bytes: an engine may tell of many ids at once, with alternatives for each."""


async def follow(
    source: UpstreamResponse,
    take: Callable[[bytes], Awaitable[bool]],
    stop: Callable[[], None],
) -> bool:
    """Hand whole events to `take`, until the stream has ended; whether it said so.

    Where `take` is True, no more is wanted: `stop` is called, once, and the engine may
    still tell the usage. Raises GatewayError where it breaks off before.
    """
    events, stopped = WholeEvents(max_held=LONGEST_EVENT), False
    limit = asyncio.timeout(None)
    try:
        async with limit:
            async for piece in source:
                whole = events.feed(piece)
                if events.inside:
                    raise MalformedAnswer("the worker's event is too long")
                if whole and await take(whole) and not stopped:
                    stopped = True
                    stop()
                if (stopped or events.done) and limit.when() is None:
                    now = asyncio.get_running_loop().time()
                    limit.reschedule(now + LAST_WORDS_S)
    except TimeoutError:
        source.abort()
    except UpstreamReset:
        if not events.done and not stopped:
            raise  # else all is there, and only the end of the body is not
    finally:
        del limit  # it has the task, which has the error, which has this frame
    if not events.done and not stopped:
        raise MalformedAnswer("the worker's stream ended before its end")
    return events.done
