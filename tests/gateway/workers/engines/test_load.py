"""What engines say of their load, in their own words."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workers.contact import ENGINES
from gateway.workers.engines import sglang, trtllm, vllm
from gateway.workers.engines.facts import LARGEST_COUNT, LARGEST_TOTAL, RANKS, Page
from gateway.workers.engines.prometheus import by_rank
from router.load import Load, Prefills

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny-qwen3"} 3.0
vllm:num_requests_running{engine="1",model_name="tiny-qwen3"} 1.0
vllm:num_requests_waiting{engine="0",model_name="tiny-qwen3"} 12.0
vllm:num_requests_waiting{engine="1",model_name="tiny-qwen3"} 0.0
vllm:num_requests_waiting_by_reason{engine="1",model_name="a",reason="capacity"} 77.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny-qwen3"} 0.8125
vllm:kv_cache_usage_perc{engine="1",model_name="tiny-qwen3"} 1.0
vllm:request_prefill_time_seconds_bucket{engine="0",le="0.3",model_name="a"} 4.0
vllm:request_prefill_time_seconds_count{engine="0",model_name="tiny-qwen3"} 4.0
vllm:request_prefill_time_seconds_sum{engine="0",model_name="tiny-qwen3"} 0.5
vllm:request_prefill_kv_computed_tokens_sum{engine="0",model_name="tiny-qwen3"} 8192.0
"""
"""Lines of vLLM 0.32's page, with other values."""
TRTLLM = """\
trtllm_num_requests_running{engine_type="undefined",model_name="m"} 7.0
trtllm_num_requests_waiting{engine_type="undefined",model_name="m"} 2.0
trtllm_kv_cache_utilization{engine_type="undefined",model_name="m"} 0.25
"""
SGLANG = """\
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} 5.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0"} 6.0
sglang:token_usage{engine_type="unified",model_name="m",tp_rank="0"} 0.5
"""


def page(text: str) -> Page:
    """An answer with this text."""
    return Page(200, text.encode())


def loads(**entry: Any) -> Page:
    """SGLang's answer for one rank."""
    return page(json.dumps({"timestamp": 1.0, "version": "0.5.23", "loads": [entry]}))


def test_vllm() -> None:
    """Each data-parallel rank is told apart; longer names are other metrics."""
    assert vllm.load(page(VLLM)) == {
        0: Load(
            running=3,
            waiting=12,
            kv_usage=0.8125,
            prefills=Prefills(8192.0, 0.5, 4.0),
        ),
        1: Load(running=1, waiting=0, kv_usage=1.0),
    }


def test_older_vllm() -> None:
    """The share of the cache had another name."""
    older = VLLM.replace("kv_cache_usage_perc", "gpu_cache_usage_perc")
    assert vllm.load(page(older))[0].kv_usage == 0.8125


def test_trtllm() -> None:
    """Its page is the whole worker's."""
    assert trtllm.load(page(TRTLLM)) == {0: Load(running=7, waiting=2, kv_usage=0.25)}


def test_sglang() -> None:
    """It tells the tokens that wait, and its counters of prefill."""
    told = loads(
        dp_rank=3,
        num_running_reqs=2,
        num_waiting_reqs=4,
        num_waiting_uncached_tokens=9_000,
        token_usage=0.75,
        total_prefill_uncached_tokens=1_000_000,
        total_prefill_busy_us=50_000_000,
    )
    assert sglang.load(told) == {
        3: Load(
            running=2,
            waiting=4,
            kv_usage=0.75,
            waiting_tokens=9_000,
            prefills=Prefills(1_000_000, 50.0),
        )
    }


def test_sglang_without_its_route() -> None:
    """The Prometheus page of releases before it."""
    assert sglang.load(page(SGLANG)) == {0: Load(running=5, waiting=6, kv_usage=0.5)}


@pytest.mark.parametrize("name", list(ENGINES))
@pytest.mark.parametrize(
    "answer",
    [Page(404), Page(401, b"{}"), Page(200), page("[]"), page("{}"), page("<html>")],
    ids=["missing", "a key", "empty", "a list", "an object", "html"],
)
def test_no_load(name: str, answer: Page) -> None:
    """Then there is none, and the ledger stands alone."""
    assert ENGINES[name].load(answer) == {}


@pytest.mark.parametrize(
    "line",
    [
        'up{engine="0"} NaN',
        'up{engine="0"} -1',
        'up{engine="0"} +Inf',
        'up{engine="0"} 1e13',
        'up{engine="0"} 1e308',
        'up{engine="0"}',
        'up{engine="99999"} 1',
        'up{engine="x"} 1',
        'up2{engine="0"} 1',
        "up",
    ],
)
def test_samples_that_are_none(line: str) -> None:
    """Of no number, or of no rank."""
    assert by_rank(line, "engine", "up") == {}


def test_samples_that_are_some() -> None:
    """Without labels, with a time, with braces in a label, as the last line."""
    assert by_rank("up 3", "engine", "up") == {0: 3.0}
    assert by_rank("a 1\nup 3e2 1700000000\nb 1", "engine", "up") == {0: 300.0}
    assert by_rank('up{m="{} x",engine="1"} 2\n', "engine", "up") == {1: 2.0}


@pytest.mark.parametrize("name", list(ENGINES))
@given(data=st.data())
def test_any_page(name: str, data: st.DataObject) -> None:
    """Whatever a worker answers, a load is a load."""
    lines = [*VLLM.splitlines(), *TRTLLM.splitlines(), *SGLANG.splitlines()]
    names = [line.partition("{")[0] for line in lines]
    huge = st.sampled_from([1e13, 1e307, 1e308, -1e308, 10**13, 10**400, -(10**400)])
    number = st.floats() | st.integers() | huge | st.text(max_size=5) | st.none()
    some = st.builds(
        lambda metric, rank, value: f'{metric}{{engine="{rank}"}} {value}',
        st.sampled_from(names),
        number,
        number,
    )
    field = st.sampled_from(
        [
            "dp_rank", "num_running_reqs", "num_waiting_reqs", "token_usage",
            "num_waiting_uncached_tokens", "total_prefill_busy_us",
            "total_prefill_uncached_tokens",
        ]
    )  # fmt: skip
    entry = st.dictionaries(field, number) | st.none()
    text = data.draw(
        st.lists(some).map("\n".join)
        | st.lists(entry).map(lambda found: json.dumps({"loads": found}))
    )
    for rank, load in ENGINES[name].load(page(text)).items():
        assert 0 <= rank < RANKS
        counts = (load.running, load.waiting, load.waiting_tokens or 0)
        assert 0 <= min(counts) <= max(counts) <= LARGEST_COUNT
        assert load.kv_usage is None or 0 <= load.kv_usage <= 1
        totals = msgspec.structs.astuple(load.prefills or Prefills(0, 0))
        assert all(0 <= (total or 0) <= LARGEST_TOTAL for total in totals)


def test_totals_of_years() -> None:
    """13 days of prefills in microseconds; 2e12 tokens that a page has counted."""
    told = {"total_prefill_busy_us": 1 << 41, "total_prefill_uncached_tokens": 1 << 42}
    assert sglang.load(loads(**told))[0].prefills == Prefills(1 << 42, (1 << 41) / 1e6)
    text = VLLM.replace("8192.0", "2e12")
    assert vllm.load(page(text))[0].prefills == Prefills(2e12, 0.5, 4.0)


def test_sglang_numbers_that_are_none() -> None:
    """Tokens that wait are not told then, and a rank that is none tells nothing."""
    for tokens in (-1, 10**400, "9"):
        told = sglang.load(loads(num_waiting_uncached_tokens=tokens))
        assert told == {0: Load(waiting_tokens=None)}
    assert sglang.load(loads(dp_rank=-1)) == sglang.load(loads(dp_rank=RANKS)) == {}
