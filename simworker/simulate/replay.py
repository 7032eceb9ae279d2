"""Replays a workload on a fleet, one policy at a time, and says what came of it."""

import random
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from router.decision import Decision
from router.policies import POLICIES
from router.policy import Policy
from router.pool import NoCandidate
from router.request import Rendering, RouteRequest, Usage
from simworker.simulate.fleet import MODEL, PROFILE, Fleet
from simworker.simulate.options import BadOptions, SimulateOptions
from simworker.simulate.prompts import BlockCutter, Prompt, ceiling, extended, length
from simworker.simulate.synthetic import SYNTHETIC
from simworker.simulate.timeline import Timeline
from simworker.simulate.worker import VirtualRequest
from simworker.simulate.workload import Asked, azure, mooncake, scaled

READERS = {"mooncake": mooncake, "azure": azure}
Policies = Mapping[str, type[Policy]]

TICK_S = 1.0
QUIET_S = 60.0
"""When nothing has happened for so long, time alone changes little."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy made of a workload. Times in seconds, rates in tokens.

    `ceiling` is the hit rate of one endless cache; `imbalance` the most uncached tokens
    a worker prefilled over the mean; `decisions_s` decisions per second of CPU.
    """

    policy: str
    requests: int
    success_rate: float
    hit_rate: float
    ceiling: float
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    output_tokens_s: float
    imbalance: float
    decisions_s: float


def workload(options: SimulateOptions) -> list[Asked]:
    """The requests to replay; raises BadWorkload."""
    if options.synthetic is not None:
        asked = SYNTHETIC[options.synthetic](random.Random(options.seed))
    elif options.trace is not None:
        asked = READERS[options.format](options.trace)
    else:
        raise BadOptions(f"--format {options.format} needs --trace FILE")
    return scaled(asked[: options.limit], options.arrival_scale)


class Replay:
    """One policy's run over a workload."""

    def __init__(
        self,
        options: SimulateOptions,
        asked: Sequence[Asked],
        policy: str,
        cutter: BlockCutter,
        *,
        policies: Policies = POLICIES,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._options = options
        self._asked = asked
        self._policy = policy
        self._cutter = cutter
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._timeline = Timeline()
        rng = random.Random(f"{options.seed} {policy}")
        chooser = policies[policy](rng, self._timeline.clock)
        self.fleet = Fleet(options, chooser, self._timeline)
        self._followers: dict[int, list[int]] = {}
        self._left = len(asked)
        self._happened = 0
        self._busy_at = 0.0
        self._decision_s = 0.0
        self._ttfts: list[float] = []
        self._answered = self._hits = 0
        self._prompt_tokens = self._output_tokens = 0
        self._finished_at = 0.0

    def run(self, best: float) -> Outcome:
        """Replay everything; `best` is the workload's ceiling. Raises TooLate."""
        for number, request in enumerate(self._asked):
            if request.follows is None:
                self._timeline.at(request.at, self._arrival(number))
            else:
                self._followers.setdefault(request.follows, []).append(number)
        self._timeline.after(TICK_S, self._tick)
        begun, cpu_begun = self._clock(), self._cpu_clock()
        self._timeline.run()
        # Reading CPU time may be slow, so it is read twice, not with each decision.
        busy = (self._cpu_clock() - cpu_begun) / max(self._clock() - begun, 1e-9)
        return self._outcome(best, self._decision_s * busy)

    def _tick(self) -> None:
        left = self.fleet.tick()
        if self._left:
            self._timeline.after(TICK_S if left else self._rest_s(), self._tick)

    def _rest_s(self) -> float:
        """Whole seconds until the next tick: the more, the longer nothing happens.

        There is always one in the last second before something does.
        """
        timeline = self._timeline
        if timeline.happened > self._happened + 1:  # more than the tick
            self._busy_at = timeline.now
        self._happened = timeline.happened
        quiet_s = timeline.now - self._busy_at
        if quiet_s < QUIET_S:
            return TICK_S
        return max(TICK_S, min(quiet_s, timeline.free_s) // TICK_S * TICK_S)

    def _arrival(self, number: int) -> Callable[[], None]:
        return lambda: self._arrive(number)

    def _arrive(self, number: int) -> None:
        asked = self._asked[number]
        arrived, tokens = self._timeline.now, length(asked.prompt)
        blocks = self._cutter.blocks(asked.prompt)
        rendering = Rendering(
            profile=PROFILE,
            block_size=self._options.block_size,
            hashes=blocks,
            token_count=tokens,
        )
        route = RouteRequest(
            model=MODEL,
            renderings={(PROFILE, self._options.block_size): rendering},
            prompt_tokens=tokens,
            stream=True,
            session=asked.session,
        )
        begun = self._clock()
        try:
            decision = self.fleet.router.decide(route)
        except NoCandidate:
            self._over(number)
            return
        self._decision_s += self._clock() - begun
        decision.sent()
        request = self._request(number, tokens, blocks, rendering, decision, arrived)
        self.fleet.workers[decision.worker.url].submit(request)

    def _request(
        self,
        number: int,
        tokens: int,
        blocks: list[int],
        rendering: Rendering,
        decision: Decision,
        arrived: float,
    ) -> VirtualRequest:
        asked = self._asked[number]

        def first_token() -> None:
            decision.answered(200)
            decision.first_token()
            self._ttfts.append(self._timeline.now - arrived)

        def ended() -> None:
            decision.finished(
                Usage(
                    prompt_tokens=tokens,
                    completion_tokens=asked.output_tokens,
                    cached_tokens=request.cached_tokens,
                )
            )
            self._answered += 1
            self._hits += request.cached_tokens
            self._prompt_tokens += tokens
            self._output_tokens += asked.output_tokens
            self._finished_at = self._timeline.now
            self._over(number)

        def failed() -> None:
            decision.failed("reset")
            self._over(number)

        request = VirtualRequest(
            prompt_tokens=tokens,
            output_tokens=asked.output_tokens,
            blocks=blocks,
            all_blocks=self._cutter.blocks(_whole(asked, number)),
            matchable=len(rendering.matchable()),
            on_first_token=first_token,
            on_end=ended,
            on_failed=failed,
        )
        return request

    def _over(self, number: int) -> None:
        """A request has ended, well or not: who waited for its answer may go on."""
        self._left -= 1
        for follower in self._followers.pop(number, ()):
            gap_s = self._asked[follower].gap_s
            self._timeline.after(gap_s, self._arrival(follower))

    def _outcome(self, best: float, decision_cpu_s: float) -> Outcome:
        ttfts = sorted(self._ttfts) or [0.0]
        work = [worker.prefilled_tokens for worker in self.fleet.workers.values()]
        count = len(self._asked)
        return Outcome(
            policy=self._policy,
            requests=count,
            success_rate=round(self._answered / count, 6),
            hit_rate=round(self._hits / max(1, self._prompt_tokens), 4),
            ceiling=round(best, 4),
            ttft_mean_s=round(sum(ttfts) / len(ttfts), 4),
            ttft_p50_s=round(_quantile(ttfts, 0.5), 4),
            ttft_p90_s=round(_quantile(ttfts, 0.9), 4),
            ttft_p99_s=round(_quantile(ttfts, 0.99), 4),
            output_tokens_s=round(self._output_tokens / max(self._finished_at, 1e-9)),
            imbalance=round(max(work) * len(work) / max(1, sum(work)), 3),
            decisions_s=round(count / max(decision_cpu_s, 1e-9)),
        )


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def hit_ceiling(asked: Sequence[Asked], cutter: BlockCutter) -> float:
    """The hit rate of one endless cache, requests in the order they are listed."""
    pairs = ((r.prompt, _whole(r, number)) for number, r in enumerate(asked))
    total = sum(length(request.prompt) for request in asked)
    return ceiling(pairs, cutter) / max(1, total)


def _whole(asked: Asked, number: int) -> Prompt:
    """A request's prompt and answer, but for its last token: that is not computed."""
    answer = asked.answer if asked.answer is not None else -1 - number
    return extended(asked.prompt, answer, asked.output_tokens - 1)
