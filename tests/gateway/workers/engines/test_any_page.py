"""Whatever a worker's routes answer, its facts are sensible or absent."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workers.contact import ENGINES
from gateway.workers.engines import sglang, trtllm, vllm
from gateway.workers.engines.facts import (
    LARGEST_BLOCK,
    RANKS,
    EventSource,
    Page,
    connectable,
)

URL = "http://w1:8000"
NAMES = [
    "page_size", "dcp_size", "dp_size", "max_total_num_tokens", "version",
    "startup_time", "kv_events", "internal_states", "tokens_per_block",
    "kv_cache_hash_algo", "publisher", "endpoint_host", "endpoint_port_base",
    "block_size", "replay_endpoint_port_base", "0", "1", "00", "enable_kv_cache_events",
    "endpoint", "replay_endpoint",
]  # fmt: skip
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([10**400, -(10**400)])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "*", "tcp://*:5557", "zmq", "0.5.23", "::"])
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES), inner, max_size=8)
    ),
    max_leaves=20,
)
PAGES = (
    st.none()
    | st.builds(Page, st.sampled_from([200, 401, 404]), st.binary(max_size=50))
    | JSON.map(lambda value: Page(200, json.dumps(value).encode()))
)


@pytest.mark.parametrize("name", list(ENGINES))
@given(data=st.data())
def test_any_answers(name: str, data: st.DataObject) -> None:
    """Each fact is of its kind and within its bounds."""
    engine = ENGINES[name]
    facts = engine.read({route: data.draw(PAGES) for route in engine.ROUTES}, URL)
    assert facts.block_size is None or 1 <= facts.block_size <= LARGEST_BLOCK
    assert facts.cache_blocks is None or facts.cache_blocks > 0
    assert all(0 <= rank < RANKS for rank in (*facts.ranks, *(facts.sources or {})))
    assert all(isinstance(s, EventSource) for s in (facts.sources or {}).values())
    msgspec.json.encode([facts.version, facts.started_at, facts.trouble])


def info(**told: Any) -> dict[str, Page | None]:
    """A /server_info."""
    return {"/server_info": Page(200, json.dumps(told).encode()), "/version": None}


def test_sglang_publishers_that_are_none() -> None:
    """No port, a port beyond the last one, a publisher that is off."""
    descriptors: list[Any] = [
        None,
        {"publisher": "null", "endpoint_port_base": 5557},
        {"publisher": "zmq"},
        {"endpoint_port_base": 65_535, "dp_size": 2},
        {"endpoint_port_base": "5557"},
        [],
    ]
    for descriptor in descriptors:
        assert sglang.read(info(kv_events=descriptor), URL).sources == {}


def test_sglang_ports_up_to_the_last_one() -> None:
    """Each rank has one; where not each has one to replay at, none is asked there."""
    for base, size in ((65_535, 1), (65_534, 2)):
        told = {"endpoint_port_base": base, "dp_size": size}
        sources = sglang.read(info(kv_events=told), URL).sources
        assert sources is not None
        assert sources[size - 1].endpoint == "tcp://w1:65535"
    told = {"endpoint_port_base": 5557, "replay_endpoint_port_base": 65_535}
    for size, replay in ((1, "tcp://w1:65535"), (2, None)):
        sources = sglang.read(info(kv_events=told | {"dp_size": size}), URL).sources
        assert sources is not None
        assert sources[0].replay == replay


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "::", "[::]"])
def test_sglang_wildcards_are_the_worker(host: str) -> None:
    """Whichever way it binds everywhere."""
    told = info(kv_events={"endpoint_host": host, "endpoint_port_base": 5557})
    sources = sglang.read(told, URL).sources
    assert sources == {0: EventSource(endpoint="tcp://w1:5557")}
    assert connectable("tcp://[fd00::2]:1", URL) == "tcp://[fd00::2]:1"


def test_sglang_sizes() -> None:
    """Of its events; a page on all context-parallel ranks; of the cache in blocks."""
    told = info(page_size=16, dcp_size=4, max_total_num_tokens=6400)
    facts = sglang.read(told, URL)
    assert (facts.block_size, facts.cache_blocks) == (64, 100)
    states = [{"max_total_num_tokens": 640}]
    told = info(kv_events={"block_size": 1}, page_size=16, internal_states=states)
    facts = sglang.read(told, URL)
    assert (facts.block_size, facts.cache_blocks) == (1, 640)


def test_a_start_that_is_none() -> None:
    """A number that no clock shows."""
    assert sglang.read(info(startup_time=10**400), URL).started_at is None
    assert sglang.read(info(startup_time=1.5), URL).started_at == 1.5


def test_trtllm_waits_until_it_knows_how_to_read() -> None:
    """Fetched events are gone: none is fetched while /server_info fails."""
    pages: dict[str, Page | None] = {"/version": None, "/server_info": None}
    assert trtllm.read(pages, URL).drained is None
    for page in (Page(404), Page(401)):  # it has none, or tells us none
        decoder = trtllm.read(pages | {"/server_info": page}, URL).drained
        assert decoder == trtllm.EventDecoder(None)


def test_vllm_ranks() -> None:
    """By its listing of sources, else by the labels of its metrics."""
    page = b"".join(
        b'vllm:num_requests_running{engine="%d",model_name="m"} 0.0\n' % rank
        for rank in (5, 4)
    )
    off = {"enable_kv_cache_events": False}
    listing = Page(200, json.dumps({"0": off, "1": off, "x": off}).encode())
    pages = {"/version": None, "/metrics": Page(200, page), "/kv_event_sources": None}
    assert vllm.read(pages, URL).ranks == (4, 5)
    assert vllm.read(pages | {"/kv_event_sources": listing}, URL).ranks == (0, 1)
    assert vllm.is_mine(listing.object())
    assert not vllm.is_mine({"data": []})
