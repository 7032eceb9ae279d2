"""A feed that asks for replays."""

from kvindex.events import KVEvent
from kvindex.feed import FeedSettings
from tests.kvindex.engine import Stream, payload


class Recovering(Stream):
    """A stream whose worker keeps its batches, as a replay socket does."""

    def __init__(self) -> None:
        super().__init__(block_size=16, settings=FeedSettings())
        self.feed.can_replay = True
        self.kept: dict[int, bytes] = {}

    def publish(self, *events: KVEvent, lose: bool = False) -> None:
        """The next batch, kept; received or lost."""
        self.kept[self.next] = payload(*events)
        if not lose:
            self.feed.receive(self.next, self.kept[self.next])
        self.next += 1

    def replay(self, *, complete: bool = True, limit: int = 10_000) -> int:
        """Do what a replay client does; how often it asked."""
        asked = 0
        while (start := self.feed.replay_from) is not None and asked < 5:
            self.feed.replaying(start)
            asked += 1
            for sequence in sorted(self.kept):
                if start <= sequence < limit:
                    self.feed.replayed(sequence, self.kept[sequence])
            self.feed.replay_ended(complete)
        return asked

    def restart(self) -> None:
        """The worker is another process, and nobody says so."""
        self.kept.clear()
        self.next = 0
