"""Rendering for routing: where "late" becomes "routed without ids", never an error.

The renderer itself is the render room's; this is where a request waits for it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from gateway.metrics.registry import Metrics
from gateway.settings.config import Config
from gateway.threads import Late, QueueFull, Threads
from render import Unrenderable

log = logging.getLogger(__name__)
T = TypeVar("T")

LATE = "deadline"
FULL = "queue_full"
TOO_LARGE = "too_large"
FAILED = "internal_error"


class NotRendered(Exception):
    """A request that is routed without ids; `reason` is a label of a fixed set."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RenderPool:
    """Renders in threads; at most `queue` requests wait, for at most `deadline` s."""

    def __init__(
        self,
        *,
        threads: int,
        queue: int,
        deadline: float,
        max_bytes: int,
        metrics: Metrics,
    ) -> None:
        self._threads = Threads(threads=threads, queue=queue, deadline=deadline)
        self._max_bytes = max_bytes
        self._metrics = metrics

    @classmethod
    def of(cls, config: Config, metrics: Metrics) -> "RenderPool":
        """As configured."""
        return cls(
            threads=config.render_threads,
            queue=config.render_queue,
            deadline=config.render_deadline,
            max_bytes=config.max_render_bytes,
            metrics=metrics,
        )

    async def run(self, work: Callable[[], T], size: int) -> T:
        """`work` on a body of `size` bytes, done in a thread; raises NotRendered.

        `work` may raise Unrenderable or NotRendered.
        """
        if size > self._max_bytes:
            raise NotRendered(TOO_LARGE)
        try:
            return await self._threads.run(work)
        except QueueFull:
            raise NotRendered(FULL) from None
        except Late:
            raise NotRendered(LATE) from None
        except NotRendered:
            raise
        except Unrenderable as error:
            raise NotRendered(error.reason) from None
        except asyncio.CancelledError:
            raise
        except Exception:
            # A fault of ours must not cost the client its answer.
            log.exception("rendering failed; the request is routed without ids")
            self._metrics.errors.labels("render").inc()
            raise NotRendered(FAILED) from None

    @property
    def outstanding(self) -> int:
        """Renderings queued or running, late ones included."""
        return self._threads.outstanding

    def close(self) -> None:
        """Stop taking work; what still runs is left to end by itself."""
        self._threads.close()
