"""What there is to see of a feed; nothing here changes it."""

from collections.abc import Sequence

from kvindex.content import Content
from kvindex.following import Following
from kvindex.index import PrefixIndex
from kvindex.intake import Intake
from kvindex.orphans import Guess
from kvindex.owner import Owner
from kvindex.standing import FeedState, Standing


class FeedView:
    """The read side of a `Feed`."""

    _standing: Standing
    _intake: Intake
    _following: Following

    @property
    def state(self) -> FeedState:
        """How far what the feed says can be trusted."""
        return self._standing.state

    @property
    def reason(self) -> str:
        """Why it is in this state; empty where all is well."""
        return self._standing.reason

    @property
    def since(self) -> float:
        """When it came to this state, by the clock."""
        return self._standing.since

    @property
    def complete(self) -> bool:
        """Does the index have all that the worker holds?"""
        return self._standing.complete

    @property
    def unindexed(self) -> str:
        """Events came, and none could be indexed: why not; "" where any could."""
        return self._intake.unindexed

    @property
    def last_sequence(self) -> int | None:
        """The number of the last batch applied, None before the first."""
        return self._following.last

    @property
    def replay_from(self) -> int | None:
        """The batch to ask a replay from, inclusive; None where none is wanted.

        While it is wanted or asked, live batches wait, in `replaying`.
        """
        return self._following.replay.wanted

    @property
    def block_size(self) -> int | None:
        """Tokens per block in the index, None until known."""
        return self.index.block_size if self.index else None

    @property
    def cache_blocks(self) -> int | None:
        """Blocks of the worker's cache in all media, where its events tell that."""
        return self._intake.cache_blocks

    @property
    def index(self) -> PrefixIndex | None:
        """Where the worker's blocks are, once their size is known."""
        holder = self._intake.holder
        return holder.shelf.index if holder else None

    @property
    def owner(self) -> Owner | None:
        """This (worker, rank) in `index`."""
        holder = self._intake.holder
        return holder.shelf.owner if holder else None

    @property
    def orphans(self) -> int:
        """Blocks that wait for their parent."""
        holder = self._intake.holder
        return len(holder.orphans) if holder else 0

    def held(self, hashes: Sequence[int]) -> int:
        """How many of these leading blocks the index says are held, in any medium."""
        holder = self._intake.holder
        if holder is None or not holder.shelf.owner.blocks:
            return 0
        return holder.shelf.index.match(hashes, [holder.shelf.owner])[0].blocks

    def guess(self, content: Content) -> Guess | None:
        """What a prompt may have in common with orphans, by its ids."""
        holder = self._intake.holder
        if holder is None or holder.page_size != content.block_size:
            return None
        return holder.orphans.guess(content)
