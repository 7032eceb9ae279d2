"""What is found wrong with a worker by what is known of it, and what mends it."""

import time

import msgspec
import pytest

from gateway.doctor.diagnosis import examine
from gateway.doctor.finding import Finding
from gateway.doctor.remedies import for_events, for_rendering
from gateway.doctor.trial import Trial
from gateway.workers.contact import WorkerFacts
from gateway.workers.engines.facts import Page, no_size, refused
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from router.load import Load
from router.pool import WorkerPool
from router.proof import Proof
from router.worker import Worker, WorkerSpec


def known(url: str = "http://w1:8000") -> tuple[Worker, WorkerFacts]:
    """A proven vLLM worker that tells its load and no events, and what it told."""
    pool = WorkerPool(clock=time.monotonic)
    worker = pool.add(WorkerSpec(url=url, model="m", engine="vllm"))
    pool.answered(worker)
    worker.proof = Proof(by="digest")
    pool.reported(worker, 0, Load(), own=0, source="/metrics")
    return worker, WorkerFacts(models=(), listing=(), engine="vllm")


@pytest.mark.parametrize(
    ("trial", "told", "problem", "remedy"),
    [
        (Trial(None, 64), "told", None, ""),
        (Trial(None, 0), "told", "a chat sent twice found nothing cached",
         "start it without --no-enable-prefix-caching"),
        (Trial(None, None), "not told",
         "it tells no cached tokens, so predictions go unchecked",
         "start it with --enable-prompt-tokens-details"),
        (Trial("a small chat is answered 401"), "?", "a small chat is answered 401",
         "--worker-api-key KEY"),
        (Trial("a small chat is answered 500"), "?", "a small chat is answered 500",
         "see the worker's log"),
    ],
)  # fmt: skip
def test_what_comes_of_a_small_chat(
    trial: Trial, told: str, problem: str | None, remedy: str
) -> None:
    """Whether cached tokens are told, and whether there are any."""
    worker, facts = known()
    found = examine(worker, facts, trial)
    assert found.cached_tokens == told
    expected = () if problem is None else (Finding(problem, remedy),)
    assert found.findings == expected


def test_a_chat_sent_twice_to_ranks_that_cannot_be_chosen() -> None:
    """The second may have come to another: nothing is wrong with such a worker."""
    worker, facts = known()
    worker.ranks, worker.can_pin_ranks = (0, 1), False
    (finding,) = examine(worker, facts, Trial(None, 0)).findings
    assert "another of its ranks" in finding.problem
    assert not finding.wrong


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("cannot connect: no TLS (WRONG_VERSION_NUMBER)", "http:// in its address"),
        ("cannot connect: its certificate does not hold (self-signed)", "--worker-ca"),
        ("cannot connect: Connection refused", "is it up?"),
    ],
)
def test_a_worker_that_cannot_be_connected_to(reason: str, remedy: str) -> None:
    """One that answers is up."""
    worker, _ = known()
    worker.reason = reason
    (finding,) = examine(worker, None).findings
    assert remedy in finding.remedy
    assert ("is it up?" in finding.remedy) is ("refused" in reason)


def test_a_load_that_is_not_told() -> None:
    """Nothing is wrong: what this gateway sent is known, and nothing else is."""
    worker, facts = known()
    assert examine(worker, facts, Trial(None, 64)).load == "/metrics"
    worker.reports.clear()
    found = examine(worker, facts, Trial(None, 64))
    assert found.load == "own requests"
    (finding,) = found.findings
    assert (finding.remedy, finding.wrong) == (
        "start it without --disable-log-stats",
        False,
    )


def test_a_block_size_that_cannot_be() -> None:
    """Its events may tell another; until then that is wrong."""
    worker, facts = known()
    odd = msgspec.structs.replace(facts, trouble=no_size("block_size", -4))
    (finding,) = examine(worker, odd).findings
    assert finding.problem.startswith("block_size is '-4': no block size")
    assert finding.remedy == "its events tell it: --probe"
    assert finding.wrong


def test_a_key_that_is_wanted() -> None:
    """The flag that gives it."""
    worker, facts = known()
    shut = msgspec.structs.replace(facts, trouble=refused("/server_info", Page(401)))
    (finding,) = examine(worker, shut).findings
    assert finding.remedy == "--worker-api-key KEY"


def test_events_that_cannot_be_used() -> None:
    """Counted, by reason."""
    worker, facts = known()
    indexes = Indexes(limit_bytes=1 << 20)
    worker.knowledge[0] = Knowledge.open(
        model="m", indexes=indexes, key="w1", clock=time.monotonic, capacity_blocks=8
    )
    worker.knowledge[0].feed.receive(0, b"\xc1")
    *_, finding = examine(worker, facts).findings
    assert finding.problem == "1 of its KV events are undecodable: batch"
    worker.knowledge[0].feed.counters.rejected.update(group_kind=7, length=2)
    texts = [finding.problem for finding in examine(worker, facts).findings]
    assert "2 of its KV events are rejected: length" in texts
    assert not any("group_kind" in text for text in texts)


def test_remedies_name_the_worker() -> None:
    """What is to be typed has its own address in it."""
    worker, _ = known("http://[::1]:8000")
    typed = "--kv-events http://[::1]:8000=tcp://[::1]:5557"
    assert typed in for_events(worker)
    assert for_rendering(worker, "no_model") == "--model m=DIR_OR_ID"
