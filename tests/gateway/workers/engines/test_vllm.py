"""vLLM's own words: any page gives numbers or nothing, wildcards are the worker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.workers.engines.facts import EventSource, Page, connectable
from gateway.workers.engines.vllm import cache_numbers, event_sources, read


@given(st.text())
def test_any_metrics_page(page: str) -> None:
    """A page of any text gives numbers or nothing."""
    for text in (page, f"process_start_time_seconds {page}\n{page}"):
        assert set(cache_numbers(text)) <= {
            "block_size",
            "num_gpu_blocks",
            "started_at",
        }


@pytest.mark.parametrize("value", ["0", "-1", "x", "\u00b2", "9" * 40, ""])
def test_numbers_that_are_none(value: str) -> None:
    """What is no sensible number is left out."""
    page = f'vllm:cache_config_info{{block_size="{value}"}} 1\n'
    page += f"process_start_time_seconds {value}x\n"
    assert cache_numbers(page) == {}


@pytest.mark.parametrize(
    ("endpoint", "worker", "reached"),
    [
        ("tcp://*:5557", "http://w1:8000", "tcp://w1:5557"),
        ("tcp://0.0.0.0:5557", "http://w1:8000", "tcp://w1:5557"),
        ("tcp://[::]:5557", "http://[fd00::1]:8000", "tcp://[fd00::1]:5557"),
        ("tcp://10.0.0.9:5557", "http://w1:8000", "tcp://10.0.0.9:5557"),
        ("ipc:///run/events", "http://w1:8000", "ipc:///run/events"),
    ],
)
def test_where_to_connect(endpoint: str, worker: str, reached: str) -> None:
    """A wildcard is the worker's own host."""
    assert connectable(endpoint, worker) == reached


def test_event_sources() -> None:
    """By rank; what is switched off, odd or without an endpoint is left out."""
    on = {"enable_kv_cache_events": True, "endpoint": "tcp://*:5557"}
    sources = {
        "0": on | {"topic": 7},
        "1": on | {"endpoint": "tcp://10.0.0.9:5558", "topic": "", "x": [1]},
        "2": on | {"enable_kv_cache_events": False},
        "3": on | {"endpoint": None},
        "4": on | {"endpoint": 7},
        "x": on,
        "5": "tcp://w1:5557",
    }
    assert event_sources(sources, "http://w1:8000") == {
        0: EventSource(endpoint="tcp://w1:5557"),
        1: EventSource(endpoint="tcp://10.0.0.9:5558", topic=""),
    }


def test_sources_that_want_a_key() -> None:
    """They are not known, which is not none; and the flag is named."""
    page = Page(200, b'vllm:cache_config_info{block_size="16"} 1\n')
    pages = {"/version": None, "/metrics": page, "/kv_event_sources": Page(401)}
    told = read(pages, "http://w1:8000")
    assert (told.sources, told.block_size) == (None, 16)
    assert "/kv_event_sources answers 401" in (told.trouble or "")
    assert "--worker-api-key" in (told.trouble or "")
