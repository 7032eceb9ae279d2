"""An engine on virtual time, for tests."""

from kvindex.events import KVEvent
from simworker.cache import BlockCache
from simworker.engine import Engine
from simworker.engine_settings import EngineSettings
from simworker.hashing import BlockHasher
from simworker.job import Job

SETTINGS = EngineSettings(
    prefill_rate=1000.0,
    decode_rate=10.0,
    prefill_cost_s=0.5,
    max_running=2,
    max_step_tokens=1000,
)


class Rig:
    """An engine on a virtual clock, with a record of all it did."""

    def __init__(
        self,
        settings: EngineSettings = SETTINGS,
        *,
        blocks: int = 1000,
        block_size: int = 10,
        hasher: BlockHasher | None = None,
    ) -> None:
        hasher = hasher or BlockHasher()
        self.cache = BlockCache(blocks=blocks, block_size=block_size, hasher=hasher)
        self.now = 0.0
        self.batches: list[tuple[float, list[KVEvent]]] = []
        self.tokens: list[tuple[float, str, int]] = []
        self.engine = Engine(settings, self.cache, hasher, on_batch=self._batch)

    def _batch(self, events: list[KVEvent]) -> None:
        self.batches.append((round(self.now, 6), events))

    def submit(self, name: str, job: Job) -> Job:
        """Hand a job in now; its progress is recorded under `name`."""
        job.on_progress = lambda: self.tokens.append(
            (round(self.now, 6), name, job.produced)
        )
        self.engine.submit(job, self.now)
        return job

    def run(self, until: float = 1e9) -> None:
        """Let virtual time pass, event by event."""
        while (due := self.engine.next_time()) is not None and due <= until:
            self.now = due
            self.engine.advance(due)
        self.now = max(self.now, until) if until < 1e9 else self.now

    def events(self) -> list[KVEvent]:
        """All events so far."""
        return [event for _, batch in self.batches for event in batch]
