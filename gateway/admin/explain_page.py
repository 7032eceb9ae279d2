"""`POST /gateway/explain`: what would be chosen, why, and where the prompt is unknown.

Nothing is sent, booked or logged; the only text in it is the caller's own.
"""

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from gateway.errors import NoWorker
from gateway.models import Renderers
from kvindex.blocks import ID_BYTES
from render import Rendered
from router.explanation import Frontier
from router.pool import NoCandidate, WorkerPool
from router.request import RouteRequest
from router.router import Router
from router.worker import Worker, WorkerState

NOT_RENDERED: Mapping[str, Rendered] = MappingProxyType({})
AROUND_TOKENS = 24
"""Tokens shown before the place where a prompt stops being known, and beyond the block
in which it does."""
LONGEST_BLOCK = 256
"""Tokens of that block that are shown at most."""


class ExplainPage:
    """Explains requests as the router weighs them."""

    def __init__(
        self,
        router: Router,
        pool: WorkerPool,
        renderers: Renderers,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is the pool's."""
        self._router = router
        self._pool = pool
        self._renderers = renderers
        self._clock = clock

    def explain(
        self, request: RouteRequest, rendered: Mapping[str, Rendered] = NOT_RENDERED
    ) -> dict[str, Any]:
        """What would be chosen for a request; raises NoWorker.

        `rendered` are its prompts by profile.
        """
        try:
            explanation = self._router.explain(request)
        except NoCandidate as error:
            raise NoWorker(str(error)) from None
        page = msgspec.to_builtins(explanation)
        if explanation.unknown_from is not None:
            found = rendered.get(explanation.unknown_from.profile)
            page["unknown_from"] |= self._text(request, explanation.unknown_from, found)
        weighed = {candidate.url for candidate in explanation.workers}
        return {
            "rendered": request.not_rendered is None,
            "reason": request.not_rendered,
            **page,
            "not_weighed": self._others(request, weighed),
        }

    def _text(
        self, request: RouteRequest, frontier: Frontier, rendered: Rendered | None
    ) -> dict[str, str]:
        """The prompt's text just before and just after it stops being known."""
        base = self._pool.resolve(request.model).model
        renderer = self._renderers.find(request.model, base, frontier.profile)
        if rendered is None or renderer is None:
            return {}
        at = frontier.token
        end = at + min(frontier.block_size, LONGEST_BLOCK) + AROUND_TOKENS
        before, after = (
            renderer.detokenize(
                rendered.token_ids[max(0, start) * ID_BYTES : end * ID_BYTES],
                skip_special_tokens=False,
            )
            for start, end in ((at - AROUND_TOKENS, at), (at, end))
        )
        return {"text_before": before, "text_after": after}

    def _others(self, request: RouteRequest, weighed: set[str]) -> list[dict[str, str]]:
        """The workers that were no candidates, and why."""
        return [
            {"url": worker.url, "state": worker.state, "reason": reason}
            for worker in self._pool.workers
            if worker.url not in weighed
            for reason in [self._why_not(worker, request)]
        ]

    def _why_not(self, worker: Worker, request: RouteRequest) -> str:
        """Why a worker is not weighed while others are."""
        if request.model not in worker.names and worker.names:
            return "does not list the model"
        if worker.url in request.exclude:
            return "does not know the adapter"
        if worker.state is WorkerState.ready and self._clock() < worker.busy_until:
            return f"busy for {worker.busy_until - self._clock():.1f} s more"
        return worker.reason
