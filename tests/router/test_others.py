"""What others have running at a worker, and how full it says it is, among equals."""

import math
import random
import statistics
from collections import Counter

import pytest

from router import Decision, Worker
from router.candidates import weigh
from router.load import LATELY_S, LIVES_S, Load, running_of_others
from tests.router.fleet import Fleet, prompt

IDS = prompt(1, 1_600)
PREFILL_S = 0.08


def report(fleet: Fleet, url: str, own: int = 0, ours: int = 0, **told: float) -> None:
    """A worker says something of its load."""
    worker, load = fleet.worker(url), Load(**told)  # type: ignore[arg-type]
    fleet.pool.reported(worker, 0, load, own=own, own_in_all=ours, source="/metrics")


@pytest.mark.parametrize(
    ("load", "own_waiting", "own", "others"),
    [
        (Load(running=250), 0, 0, 250),
        (Load(running=5), 0, 3, 2),
        (Load(running=4, waiting=1), 2, 5, 0),
        (Load(running=2, waiting=3), 0, 1, 1),
        (Load(running=2, waiting=40), 0, 0, 2),
        (Load(running=3), 0, 9, 0),
    ],
)
def test_what_runs_besides_ours(
    load: Load, own_waiting: int, own: int, others: int
) -> None:
    """Ours run or wait; who waits for others is counted apart."""
    assert running_of_others(load, own_waiting, own) == others


def test_what_others_decode_counts_as_ours_does() -> None:
    """By expected output: of workers that cost the same the other one is chosen."""
    fleet = Fleet(2)
    report(fleet, "w1", running=43, ours=3, kv_usage=0.5)
    explained = fleet.router.explain(fleet.request(IDS))
    busy, idle = explained.workers
    assert (busy.others_decode_tokens, idle.others_decode_tokens) == (40 * 256, 0)
    assert busy.busy_s == pytest.approx(1.5 * 40 * 256 / 20_000)
    assert (busy.cost_s, explained.chosen.url) == (idle.cost_s, "w2")
    assert explained.why.endswith("and is decoding more for others")


def test_least_loaded_counts_it_too() -> None:
    """It is decode work, whoever sent it."""
    fleet = Fleet(2, policy="least_loaded")
    report(fleet, "w1", running=1)
    for _ in range(4):
        decision = fleet.router.decide(fleet.request(IDS))
        assert decision.worker.url == "w2"
        decision.finished(None)


@pytest.mark.parametrize("overlap", [False, True], ids=["one by one", "overlapping"])
def test_cold_prompts_avoid_a_worker_that_others_fill(overlap: bool) -> None:
    """250 run at w1, whose cache is nearly full; w2 is idle. It was 50 to 50."""
    fleet, served = Fleet(2), Counter[str]()
    under_way: list[Decision] = []
    for number in range(100):
        report(fleet, "w1", running=250, kv_usage=0.93)
        report(fleet, "w2", running=0, kv_usage=0.0)
        decision = fleet.router.decide(fleet.request(prompt(number, 1_600)))
        decision.sent()
        under_way.append(decision)
        fleet.clock += PREFILL_S
        if len(under_way) > overlap:
            under_way.pop(0).finished(None)
        served[decision.worker.url] += 1
    assert served["w2"] >= 80


@pytest.mark.parametrize("usage", [0.3, 0.6, 0.94])
def test_a_worker_that_does_not_say_is_as_full_as_is_usual(usage: float) -> None:
    """Of four equal ones two say it: each gets its share. Silent ones got more."""
    fleet, served = Fleet(4), Counter[str]()
    under_way: list[Decision] = []
    for number in range(400):
        for url in ("w1", "w2"):
            report(fleet, url, kv_usage=usage)
        ids = prompt(number, 1_600)
        decision = fleet.router.decide(fleet.request(ids))
        decision.sent()
        under_way.append(decision)
        fleet.clock += PREFILL_S
        decision.first_token()
        if len(under_way) > 40:
            under_way.pop(0).finished(None)
        served[decision.worker.url] += 1
    assert all(90 <= count <= 110 for count in served.values()), served
    assert len(served) == 4


def test_what_full_ones_use_is_not_usual() -> None:
    """They get nothing: it is among the others that there are shares."""
    fleet = Fleet(3)
    report(fleet, "w1", kv_usage=0.99)
    report(fleet, "w2", kv_usage=0.2)
    told = fleet.router.explain(fleet.request(IDS)).workers
    assert [each.kv_usage for each in told] == [0.99, 0.2, None]
    weighed = weigh(fleet.request(IDS), fleet.pool.workers)
    assert [each.usage for each in weighed] == [0.99, 0.2, 0.2]


def test_room_is_worth_a_little() -> None:
    """Its own part of the cost, in the measure that there is more room."""
    fleet = Fleet(2)
    report(fleet, "w1", kv_usage=0.9)
    report(fleet, "w2", kv_usage=0.1)
    fleet.router.decide(fleet.request(prompt(2, 800), exclude=["w1"]))
    # w2 costs 0.2 s, w1 0.16 s: room is worth up to 0.8 x 0.16 s.
    fleet.router.decide(fleet.request(prompt(3, 64), exclude=["w2"])).finished(None)
    fleet.worker("w1").ledger(0).book(0, 4_000, prefill_s=None).release()
    explained = fleet.router.explain(fleet.request(IDS))
    assert explained.chosen.url == "w2"
    assert "more room in its KV cache" in explained.why
    fleet.clock += 60
    for url in ("w1", "w2"):
        report(fleet, url, kv_usage=0.1)
    assert fleet.router.explain(fleet.request(IDS)).chosen.url == "w1"


def test_room_is_worth_no_prefix() -> None:
    """What w1 holds of the prompt is dearer than all the room of w2."""
    fleet = Fleet(2)
    fleet.store("w1", IDS)
    report(fleet, "w1", running=200, kv_usage=0.94)
    report(fleet, "w2", kv_usage=0.0)
    assert fleet.router.explain(fleet.request(IDS)).chosen.url == "w1"


def test_what_runs_is_a_mean_of_reports() -> None:
    """A surge counts by and by, or several gateways would make up for it at once."""
    fleet = Fleet(1)
    for running in (0, 100):
        fleet.clock += 4
        report(fleet, "w1", running=running, kv_usage=running / 200)
    (told,) = fleet.router.explain(fleet.request(IDS)).workers
    share = 1 - math.exp(-4 / LATELY_S)
    assert told.others_decode_tokens == int(share * 100 * 256)
    assert told.kv_usage == pytest.approx(share / 2)
    fleet.clock += LIVES_S + 1
    report(fleet, "w1", running=100)
    (told,) = fleet.router.explain(fleet.request(IDS)).workers
    assert told.others_decode_tokens == 100 * 256


def test_a_worker_that_tells_of_one_rank_tells_of_all() -> None:
    """TensorRT-LLM with attention data parallelism: rank 0 speaks for the worker."""
    fleet = Fleet()
    for url in ("w1", "w2"):
        fleet.add(url, ranks=(0, 1)).can_pin_ranks = False
    report(fleet, "w1", running=9, waiting=4, kv_usage=0.99)
    full, other = fleet.router.explain(fleet.request(IDS)).workers
    assert (full.full, full.kv_usage, other.full, other.kv_usage) == (
        True,
        0.99,
        False,
        None,
    )
    # As what is in flight, what waits and runs is shared by the ranks.
    assert (full.others_tokens, full.others_decode_tokens) == (2_000, 9 * 256 // 2)
    for _ in range(5):
        assert fleet.router.decide(fleet.request(IDS)).worker.url == "w2"


class Gateway:
    """One of several over the same workers, whose reports it gets now and then."""

    def __init__(self, workers: int, every_s: float, rng: random.Random) -> None:
        self.fleet = Fleet(workers)
        self._every_s = every_s
        self._rng = rng
        self._next = {w.url: rng.uniform(0, every_s) for w in self.fleet.pool.workers}

    def look(self, now: float, running: Counter[str]) -> None:
        """Read the reports that are due."""
        for worker in self.fleet.pool.workers:
            if now >= self._next[worker.url]:
                self._next[worker.url] = now + self._every_s * self._rng.uniform(0.8, 1)
                self._read(worker, running[worker.url])

    def _read(self, worker: Worker, running: int) -> None:
        ledger = worker.ledger(0)
        load = Load(running=running, kv_usage=running / 90)
        self.fleet.pool.reported(
            worker,
            0,
            load,
            own=ledger.prefills,
            own_in_all=ledger.requests,
            source="/metrics",
        )


@pytest.mark.parametrize("gateways", [1, 2, 6])
def test_gateways_do_not_herd_by_old_reports(gateways: int) -> None:
    """Each believes reports of up to 4 s; answers take 5 to 15 s, 24 come a second.

    60 run at each of four workers, give or take chance. Where each gateway acts on the
    latest report alone, up to 96 run at one, and then at another.
    """
    rng, now, running = random.Random(1), 0.0, Counter[str]()
    places = [Gateway(4, 4.0, rng) for _ in range(gateways)]
    under_way: list[tuple[float, Decision]] = []
    seen: list[int] = []
    for number in range(24 * 90):
        now += 1 / 24
        for place in places:
            place.fleet.clock += 1 / 24
            place.look(now, running)
        for ended in [pair for pair in under_way if pair[0] <= now]:
            under_way.remove(ended)
            running[ended[1].worker.url] -= 1
            ended[1].finished(None)
        if under_way:
            under_way[-1][1].first_token()
        fleet = rng.choice(places).fleet
        decision = fleet.router.decide(fleet.request(prompt(number, 160)))
        decision.sent()
        running[decision.worker.url] += 1
        under_way.append((now + rng.uniform(5, 15), decision))
        if now > 30:
            seen += running.values()
    assert max(seen) < 75
    assert statistics.pstdev(seen) < 4
