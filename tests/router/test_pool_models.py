"""Which workers serve a model, and under which name its blocks are indexed."""

from kvindex.blocks import Namespace
from router import ListedModel, Worker, WorkerPool, WorkerSpec
from tests.router.fleet import Clock, Fleet


def urls(workers: list[Worker]) -> list[str]:
    """Their URLs, in order."""
    return [worker.url for worker in workers]


def test_candidates_list_the_model_or_else_all_do() -> None:
    """A worker that lists a model is preferred even while others look better."""
    fleet = Fleet()
    fleet.add("a1", model="alpha")
    fleet.add("b1", model="beta")
    assert urls(fleet.pool.candidates("alpha")) == ["a1"]
    assert urls(fleet.pool.candidates("gamma")) == ["a1", "b1"]
    assert urls(fleet.pool.candidates(None)) == ["a1", "b1"]
    fleet.pool.failed(fleet.worker("a1"), "refused")
    assert urls(fleet.pool.candidates("alpha")) == ["a1"]
    assert fleet.pool.candidates("alpha", frozenset({"a1"})) == []


def test_a_declared_model_counts_until_the_worker_lists_its_own() -> None:
    """A worker without `/v1/models` is taken at its declaration's word."""
    pool = WorkerPool(clock=Clock())
    worker = pool.add(WorkerSpec(url="w1", model="qwen"))
    assert worker.models == {"qwen"}
    assert worker.base_model == "qwen"
    pool.listed(worker, [ListedModel(id="qwen3", root="qwen")])
    assert worker.models == {"qwen3"}


def test_resolve_gives_base_adapter_and_salt() -> None:
    """Through the listings: aliases and adapters end at one base model."""
    fleet = Fleet()
    fleet.add(
        "w1",
        listing=[
            ListedModel(id="qwen", root="r"),
            ListedModel(id="latest", root="r"),
            ListedModel(id="sql", parent="latest"),
        ],
    )
    resolve = fleet.pool.resolve
    assert resolve("qwen") == resolve("latest") == Namespace(model="qwen")
    assert resolve("sql", "s") == Namespace(model="qwen", adapter="sql", salt="s")


def test_an_alias_first_seen_alone_keeps_its_name() -> None:
    """Workers that list different aliases of a model are indexed under one name."""
    fleet = Fleet()
    fleet.add("w1", listing=[ListedModel(id="latest", root="r")])
    both = [ListedModel(id="qwen", root="r"), ListedModel(id="latest", root="r")]
    worker = fleet.add("w2", listing=both)
    assert worker.base_model == "latest"
    assert fleet.pool.resolve("qwen") == Namespace(model="latest")
    fleet.pool.listed(worker, reversed(both))
    assert worker.base_model == "latest"


def test_listing_the_same_again_changes_nothing() -> None:
    """Polls repeat themselves; names are given once."""
    fleet = Fleet(1)
    worker = fleet.worker("w1")
    names = worker.names
    fleet.pool.listed(worker, [ListedModel(id="qwen")])
    assert worker.names is names


def test_a_model_nobody_lists_is_taken_for_what_there_is() -> None:
    """Any worker may answer it, from its own model; an empty fleet knows no better."""
    fleet = Fleet(1)
    assert fleet.pool.resolve("other") == Namespace(model="qwen")
    assert fleet.pool.resolve(None) == Namespace(model="qwen")
    empty = WorkerPool(clock=Clock())
    assert empty.resolve("other") == Namespace(model="other")
    assert empty.resolve(None) == Namespace(model="")


def test_rendering_keys_are_those_of_the_candidates() -> None:
    """One (profile, block size) a distinct pair, by the blocks a rank shows."""
    fleet = Fleet()
    fleet.add("w1", block_size=16)
    fleet.add("w2", block_size=32)
    fleet.add("w3", block_size=32)
    fleet.add("b1", model="beta", block_size=64)
    assert fleet.pool.rendering_keys("qwen") == {("vllm", 16), ("vllm", 32)}


def test_an_operator_can_name_ranks_and_profile() -> None:
    """Declared event endpoints say which ranks there are."""
    pool = WorkerPool(clock=Clock(), prefill_rate=5_000)
    worker = pool.add(
        WorkerSpec(
            url="w1", profile="sglang", kv_events={5: "tcp://h:2", 4: "tcp://h:1"}
        )
    )
    assert (worker.ranks, worker.pinned, worker.profile) == ((4, 5), True, "sglang")
    assert worker.rate.tokens_per_s == 5_000
    assert worker.block_size_of(4) == 16
    assert "w1" in repr(worker)
    worker.can_pin_ranks = False
    assert not worker.pinned
