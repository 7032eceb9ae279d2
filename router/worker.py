"""Workers as the router knows them: what they were declared, what they showed.

No connections here: the gateway contacts workers and writes down what it learnt.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from kvindex.history import History
from kvindex.knowledge import Knowledge
from router.answers import AVOIDED_S, Longest
from router.ledger import Ledger
from router.load import LoadReport
from router.meter import PrefillMeter
from router.models import ListedModel, ModelName
from router.proof import NOT_ASKED, Blocker, Proof
from router.rate import PrefillRate
from router.standing import Standing
from router.standing import WorkerState as WorkerState

DEFAULT_BLOCK_SIZE = 16
"""Assumed until a worker says: what vLLM uses on its usual devices."""

CHAT, TOKENS = "chat", "tokens"
"""What a worker takes: chats and the like, or token ids only."""
APIS = (CHAT, TOKENS)

CONTENT_PIECES = 4_096
"""Raw-content pieces remembered per (worker, rank): one MiB of request text."""


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as declared: command line, workers file or API.

    `kv_events` and `replay` map a data-parallel rank to a ZMQ endpoint.
    `model`, `engine` and `profile` are asked of the worker where left out. In
    `api_key_file` is its key for what the gateway itself asks of it. `api` is "chat",
    or "tokens" for a worker that takes token ids only.
    """

    url: str
    model: str | None = None
    engine: str | None = None
    api: str | None = None
    profile: str | None = None
    role: str = "any"
    kv_events: Mapping[int, str] = {}
    replay: Mapping[int, str] = {}
    api_key_file: str | None = None


class WorkerId(msgspec.Struct, frozen=True, kw_only=True):
    """A data-parallel rank of a worker: the owner of a KV cache."""

    url: str
    rank: int


class Worker(Standing):
    """One worker: its declaration, its state, its models, its ranks.

    Its standing belongs to the WorkerPool; the rest is
    written by whoever learns it. Tables by rank: `knowledge` (set by the gateway once
    it knows the cache), `reports` (what it says of its load), `ledgers` and
    `content_histories` (made on first use).
    """

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        clock: Callable[[], float],
        rate: PrefillRate,
        longest: Longest | None = None,
    ) -> None:
        """`longest` is what answers of its fleet take that are not streamed."""
        self.spec = spec
        self.url = spec.url
        super().__init__(clock, longest or Longest())
        self.listing: tuple[ListedModel, ...] = ()
        self.names: Mapping[str, ModelName] = {}
        self.engine = spec.engine
        self.version: str | None = None
        self.api = spec.api or CHAT
        self.profile = spec.profile or "vllm"
        self.block_size = DEFAULT_BLOCK_SIZE
        self.cache_blocks: int | None = None
        self.ranks: Sequence[int] = tuple(sorted(spec.kv_events)) or (0,)
        self.can_pin_ranks = True
        self.rate = rate
        self.proof: Proof | Blocker = NOT_ASKED
        self.doubts = 0
        self.knowledge: dict[int, Knowledge] = {}
        self.ledgers: dict[int, Ledger] = {}
        self.reports: dict[int, LoadReport] = {}
        self._meters: dict[int, PrefillMeter] = {}
        self.content_histories: dict[int, History] = {}
        self.api_key: str | None = None
        self.heard = False
        """It has answered at least once."""
        self._clock = clock

    def __repr__(self) -> str:
        return f"Worker({self.url}, {self.state})"

    @property
    def models(self) -> frozenset[str]:
        """Ids of the models and adapters it lists."""
        return frozenset(self.names)

    @property
    def base_model(self) -> str | None:
        """The base model under whose name its blocks are indexed, once known."""
        return next((name.base for name in self.names.values()), None)

    @property
    def pinned(self) -> bool:
        """Whether a request is to be sent to a rank of it by name."""
        return self.can_pin_ranks and len(self.ranks) > 1

    @property
    def inflight_requests(self) -> int:
        """Requests in flight at all its ranks."""
        return sum(ledger.requests for ledger in self.ledgers.values())

    @property
    def inflight_tokens(self) -> int:
        """Uncached prompt tokens in flight at all its ranks."""
        return sum(ledger.uncached_tokens for ledger in self.ledgers.values())

    @property
    def prefill_s(self) -> float:
        """Seconds that the prefills in flight at all its ranks should take, at most.

        That is what silence of it may be put down to.
        """
        ledgers = self.ledgers.values()
        return self.rate.seconds(sum(ledger.credible_tokens for ledger in ledgers))

    @property
    def late_s(self) -> float:
        """Seconds for which it is silent although something is due.

        Answers count until they have the worker avoided. If it gets requests even so,
        most others are late as well, as they all take long: by how much tells nothing,
        and the last that got some would get all that follow.
        """
        answers_late_s = self.pulse.answers_late_s()
        avoided = answers_late_s > AVOIDED_S
        return max(self.first_token_late_s, 0.0 if avoided else answers_late_s)

    @property
    def first_token_late_s(self) -> float:
        """Seconds for which it is silent although a first token is due."""
        if not self.pulse.owed:
            return 0.0
        return self.pulse.late_s(self.prefill_s, self.rate.cost_s)

    @property
    def excused(self) -> bool:
        """Whether a check without an answer may well be for prefills under way."""
        prefill_s = self.prefill_s
        return self.pulse.excuses(prefill_s and prefill_s + self.rate.cost_s)

    def doubt(self) -> None:
        """It may be another process now: what was proven is not, until it is again."""
        self.doubts += 1
        if isinstance(self.proof, Proof):
            self.proof = NOT_ASKED

    def block_size_of(self, rank: int) -> int:
        """The block size of a rank: what its events say, else the worker's."""
        knowledge = self.knowledge.get(rank)
        learnt = None if knowledge is None else knowledge.feed.block_size
        return learnt or self.block_size

    def ledger(self, rank: int) -> Ledger:
        """The load in flight at a rank."""
        ledger = self.ledgers.get(rank)
        if ledger is None:
            ledger = self.ledgers[rank] = Ledger(clock=self._clock)
        return ledger

    def report(self, rank: int) -> LoadReport | None:
        """What it said last of a rank's load, unless that is too long ago."""
        report = self.reports.get(rank)
        return report if report and self._clock() <= report.until else None

    def meter(self, rank: int) -> PrefillMeter:
        """What times the prefills of a rank."""
        meter = self._meters.get(rank)
        if meter is None:
            meter = PrefillMeter(self.rate, clock=self._clock)
            self._meters[rank] = meter
        return meter

    def content_history(self, rank: int) -> History:
        """Raw content of requests sent to a rank: a bounded table of its own."""
        history = self.content_histories.get(rank)
        if history is None:
            history = History(capacity_blocks=CONTENT_PIECES, clock=self._clock)
            self.content_histories[rank] = history
        return history
