"""Whose blocks a body's are, by the engine that reads it, and who may answer it."""

import json
from typing import Any

import pytest

from gateway.request.namespaces import Namespaces, namespaces
from gateway.request.peek import peek_small
from kvindex.blocks import Namespace
from router import ListedModel
from tests.router.fleet import MODEL, Fleet

BASE = Namespace(model=MODEL)
ADAPTED = Namespace(model=MODEL, adapter="a")
LORA = {"lora_name": "a", "lora_int_id": 7, "lora_path": "/a"}
LISTING = [ListedModel(id=MODEL), ListedModel(id="a", parent=MODEL)]


def fleet_of(**listings: Any) -> Fleet:
    """A worker of each profile, with what it lists; None: the model."""
    fleet = Fleet()
    for profile, listing in listings.items():
        fleet.add(profile, listing=listing).profile = profile
    return fleet


def asked(fleet: Fleet, **fields: Any) -> Namespaces:
    """What a body is for."""
    body = {"model": MODEL, "messages": []} | fields
    return namespaces(fleet.pool, peek_small(json.dumps(body).encode()))


def of(untold: str | None, adapter: str | None = None) -> Namespace:
    """One that events do not tell all of."""
    return Namespace(model=MODEL, adapter=adapter, untold=untold)


@pytest.mark.parametrize(
    ("fields", "profile", "expected"),
    [
        ({}, "sglang", BASE),
        ({"cache_salt": "s"}, "sglang", Namespace(model=MODEL, salt="s")),
        ({"lora_path": "a"}, "sglang", ADAPTED),
        ({"lora_path": "a"}, "vllm", BASE),
        ({"lora_path": "a"}, "trtllm", BASE),
        ({"lora_path": None, "extra_key": None}, "sglang", BASE),
        ({"lora_path": "", "extra_key": ""}, "sglang", BASE),
        ({"lora_path": ["a", "b"]}, "sglang", of('lora_path=["a", "b"]')),
        ({"extra_key": "x"}, "sglang", of('extra_key="x"')),
        ({"extra_key": "x"}, "vllm", BASE),
        ({"extra_key": ["x"]}, "sglang", of('extra_key=["x"]')),
        ({"extra_key": '["x"]'}, "sglang", of(r'extra_key="[\"x\"]"')),
        ({"lora_path": "a", "extra_key": "x"}, "sglang", of('extra_key="x"', "a")),
        ({"model": f"{MODEL}:a"}, "sglang", ADAPTED),
        ({"model": f"{MODEL} : a "}, "sglang", ADAPTED),
        ({"model": f"{MODEL}:"}, "sglang", BASE),
        ({"model": f"{MODEL}:a", "lora_path": "b"}, "sglang", ADAPTED),
        ({"lora_request": LORA}, "trtllm", of("lora_int_id=7", "a")),
        ({"lora_request": LORA}, "vllm", BASE),
        ({"lora_request": LORA}, "sglang", BASE),
        ({"lora_request": {"lora_name": 5}}, "trtllm", of("lora_request")),
        ({"lora_request": "a"}, "trtllm", of("lora_request")),
        ({"lora_request": None}, "trtllm", BASE),
    ],
)
def test_each_engine_reads_its_own_fields(
    fields: dict[str, Any], profile: str, expected: Namespace
) -> None:
    """What keeps a body's blocks apart at one engine is nothing to another."""
    fleet = fleet_of(vllm=None, sglang=None, trtllm=None)
    assert asked(fleet, **fields).by_profile[profile] == expected


def test_an_adapter_that_is_listed_is_a_model() -> None:
    """At SGLang a name without its base model may stand for either."""
    fleet = fleet_of(vllm=LISTING, sglang=LISTING)
    found = asked(fleet, model="a").by_profile
    assert found["vllm"] == ADAPTED
    assert found["sglang"] == of("bare", "a")


def test_a_listed_name_with_a_colon_is_one_name() -> None:
    """As of Ollama's models."""
    fleet = fleet_of(sglang=[ListedModel(id="qwen:a")])
    assert asked(fleet, model="qwen:a").by_profile["sglang"].adapter is None
    assert asked(fleet, model="qwen:a").model == "qwen:a"
    assert asked(fleet, model="qwen:a:b").by_profile["sglang"].adapter == "a:b"


@pytest.mark.parametrize(
    ("fields", "without"),
    [
        ({}, set()),
        ({"lora_path": "a"}, {"vllm", "trtllm"}),
        ({"model": f"{MODEL}:a"}, {"vllm", "trtllm"}),
        ({"lora_request": LORA}, {"vllm", "sglang"}),
        ({"model": "nobody's", "lora_path": "a"}, set()),
        ({"model": "nobody's:a"}, set()),
        ({"extra_key": "x"}, set()),
    ],
)
def test_an_adapter_goes_to_an_engine_that_reads_it(
    fields: dict[str, Any], without: set[str]
) -> None:
    """Others would answer as the base model, or not at all."""
    found = asked(fleet_of(vllm=None, sglang=None, trtllm=None), **fields)
    assert found.without == without


def test_an_adapter_goes_where_it_is_listed() -> None:
    """Of workers of one engine to those that have it; to all where none says."""
    fleet = fleet_of(sglang=None)
    other = fleet.add("w2", listing=LISTING)
    other.profile = "sglang"
    found = asked(fleet, model=f"{MODEL}:a")
    assert found.model == MODEL
    assert found.without == {"sglang"}
    assert asked(fleet, lora_path="a").without == {"sglang"}
    assert asked(fleet, lora_path="b").without == frozenset()


def test_raw_content_is_as_far_apart_as_any() -> None:
    """It is one and the same for all engines."""
    fleet = fleet_of(vllm=None, sglang=None, trtllm=None)
    assert asked(fleet).of_all == BASE
    assert asked(fleet, lora_path="a", extra_key="x").of_all == of('extra_key="x"', "a")
    assert asked(fleet, lora_request=LORA).of_all == of("lora_int_id=7", "a")
