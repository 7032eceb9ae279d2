"""May the ids of a rendered request go along to its worker?

Ids go only where nothing speaks against them; whatever does has a fixed word. Proving
that a worker renders alike is not done here, nor are ids looked at.
"""

from collections.abc import Collection
from typing import Literal, NamedTuple, get_args

from router.pool import WorkerPool
from router.proof import NOT_ASKED, PENDING, Blocker, Proof
from router.request import Forwardable, RouteRequest
from router.worker import CHAT, TOKENS, Worker

__all__ = [
    "NOT_ASKED",
    "PENDING",
    "Blocker",
    "Forwarding",
    "Offer",
    "Proof",
    "When",
    "Withheld",
]

When = Literal["all", "chosen", "never"]
"""Ids go if every worker for the model is proven, if the chosen one is, or never."""

Withheld = Literal[
    "switched_off",
    "no_workers",
    "not_rendered",
    "worker_blocked",  # a worker for the model is not proven
    "shape_not_proven",  # what the request needs was not compared with this worker
    "mode_in_prompt",  # a parser of a worker would have to read it in the text
]
"""Why ids stay here; a request's own reasons are `Forwardable.never`."""
WITHHELD: tuple[Withheld, ...] = get_args(Withheld)


class Offer(NamedTuple):
    """The profiles whose ids are wanted, or why none are."""

    profiles: frozenset[str] = frozenset()
    withheld: Withheld | None = None


class Forwarding:
    """The rule, over the workers of a pool."""

    def __init__(self, pool: WorkerPool, when: When = "all") -> None:
        self.when = when
        self._pool = pool

    def offer(self, model: str | None) -> Offer:
        """Whose ids may go to some worker for a model now, whatever the request."""
        if self.when == "never":
            return Offer(withheld="switched_off")
        workers = self._serving(model)
        if not workers:
            return Offer(withheld="no_workers")
        proven = [w.profile for w in workers if isinstance(w.proof, Proof)]
        if not proven or (self.when == "all" and len(proven) < len(workers)):
            return Offer(withheld="worker_blocked")
        return Offer(profiles=frozenset(proven))

    def blockers(self) -> dict[str, Blocker]:
        """What keeps ids from the ready and suspect workers, by their URL."""
        if self.when == "never":
            return {}
        return {
            worker.url: worker.proof
            for worker in self._serving(None)
            if isinstance(worker.proof, Blocker)
        }

    def _serving(self, model: str | None) -> list[Worker]:
        """Those that take chats: to others nothing but ids is ever sent."""
        return [w for w in self._pool.serving(model) if w.api == CHAT]

    def against(self, request: RouteRequest, chosen: Worker) -> str | None:
        """What speaks against sending the ids of a request to a worker; None: nothing.

        Only ready and suspect workers count, and the chosen one whatever it is. One
        that takes nothing but ids is sent those of whatever is rendered.
        """
        if chosen.api == TOKENS and request.not_rendered is None:
            return None
        prompt = request.forwardable.get(chosen.profile)
        if prompt is None:
            return request.no_ids or _nothing_to_send(chosen)
        if prompt.never is not None:
            return prompt.never
        if self.when == "never":
            return "switched_off"
        others = self._serving(request.model) if self.when == "all" else ()
        return _against(prompt, chosen, others)


def _nothing_to_send(chosen: Worker) -> Withheld:
    return "worker_blocked" if isinstance(chosen.proof, Blocker) else "not_rendered"


def _against(
    prompt: Forwardable, chosen: Worker, others: Collection[Worker]
) -> Withheld | None:
    proof = chosen.proof
    if isinstance(proof, Blocker):
        return "worker_blocked"
    if not proof.covers(prompt.features):
        return "shape_not_proven"
    for worker in (chosen, *others):
        if isinstance(worker.proof, Blocker):
            return "worker_blocked"
        if worker.proof.reads_mode and prompt.shows_mode:
            return "mode_in_prompt"
    return None
