"""When what one feed's index holds may be stale: from the first suspicion to its end.

Blocks in doubt weigh half. The doubt ends when the connection turns out to have missed
nothing, when each block was stored again, confirmed or dropped, or when the cache was
emptied; those left after `ttl_s` are dropped in slices.
"""

from collections.abc import Callable

from kvindex.intake import Intake
from kvindex.standing import FeedState, Standing

CONTRADICTIONS = 2
"""So many requests in a row that find less than half of what is held: it is stale. One
may be a request that skips the cache, or blocks that were evicted meanwhile."""

WALKED = 1_024
"""Blocks that one `tick` walks at most: about two milliseconds."""


class Doubt:
    """The doubt of one feed. `lost` while its connection is."""

    def __init__(
        self,
        *,
        standing: Standing,
        intake: Intake,
        clock: Callable[[], float],
        ttl_s: float,
    ) -> None:
        self.lost = False
        self._standing = standing
        self._intake = intake
        self._clock = clock
        self._ttl_s = ttl_s
        self._unharmed = True
        self._since = clock()
        self._holes_seen = 0
        self._contradictions = 0

    def missed(self, reason: str) -> None:
        """Something was missed: what is held may be stale, and is not all."""
        self.suspend(FeedState.DEGRADED, reason)
        self._unharmed = False
        if self._intake.holder:
            self._intake.holder.miss()
        self._standing.incomplete(reason)

    def suspend(self, state: FeedState, reason: str) -> None:
        """Something may have been missed; the next batch will say."""
        if self._standing.state is FeedState.LIVE:
            self._unharmed = True
        holder = self._intake.holder
        if holder is None or not holder.shelf.owner.suspect_blocks:
            self._since = self._clock()  # else what is in doubt would be so for ever
        if holder is not None:
            holder.suspect()
            if not self._unharmed:
                holder.miss()  # what is told from now on, by a replay too, is apart
        self._standing.become(state, reason)

    def emptied(self) -> None:
        """The worker's cache is empty: nothing is in doubt."""
        self._unharmed = True

    def over(self) -> None:
        """The cache was emptied by an event: what follows is all there is."""
        replaying = self._standing.state is FeedState.REPLAYING
        state = FeedState.REPLAYING if replaying else FeedState.LIVE
        reason = self._standing.reason if replaying else ""
        self._standing.become(state, reason, complete=True)

    def resume(self) -> None:
        """The next batch follows on: nothing was missed since `suspend`."""
        if not self._unharmed:
            self._standing.become(FeedState.DEGRADED, "missed batches")
            return
        if self._intake.holder:
            self._intake.holder.trust()
        reason = "" if self._standing.complete else "not all blocks are indexed"
        self._standing.become(FeedState.LIVE, reason)

    def compare(self, held: int, delivered_blocks: int) -> None:
        """Of so many leading blocks that were held, so many were found cached."""
        if not held or self._standing.state is not FeedState.LIVE:
            return
        short = 2 * delivered_blocks < held
        self._contradictions = self._contradictions + 1 if short else 0
        if self._contradictions >= CONTRADICTIONS:
            self._contradictions = 0
            self.missed("the worker finds less than is indexed")

    def tick(self) -> bool:
        """Look for holes, drop what is overdue, end a doubt about nothing.

        True where blocks are left to be walked or gathered: call again soon.
        """
        holder = self._intake.holder
        if holder is None:
            self._end()
            return False
        owner = holder.shelf.owner
        if owner.holes != self._holes_seen:
            self._holes_seen = owner.holes
            self.missed("holes in the held prefixes")
        overdue = self._clock() - self._since >= self._ttl_s
        if overdue and (self.lost or owner.suspect_blocks):
            holder.forget_orphans()
        if owner.suspect_blocks and overdue and not owner.settling:
            holder.settle_all()
            self._unharmed = False
            self._standing.incomplete("blocks in doubt were dropped")
        settles = owner.settling or not owner.suspect_blocks
        more = settles and not holder.settle(WALKED)
        if not (owner.suspect_blocks or more or self.lost):
            holder.trust()
            self._end()
        return more or holder.gather(WALKED)

    def _end(self) -> None:
        if self._standing.state is FeedState.DEGRADED and not self.lost:
            self._standing.become(FeedState.LIVE, "not all blocks are indexed")
