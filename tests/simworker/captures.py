"""Exchanges with a real vLLM 0.32 that the simulated worker is compared with."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "vllm"

Exchange = dict[str, Any]


def cases(name: str) -> dict[str, dict[str, Any]]:
    """The cases of one file, by name."""
    with gzip.open(DATA / f"{name}.json.gz", "rt") as file:
        found: dict[str, dict[str, Any]] = json.load(file)["cases"]
    return found


def batches(name: str) -> list[list[dict[str, Any]]]:
    """The events of each batch of one event stream."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt") as lines:
        return [json.loads(line)["decoded"][1] for line in lines]


def generated() -> list[Exchange]:
    """The chat cases' calls that generated from given ids."""
    return [
        case["generate"]
        for case in cases("w1_chat_cases").values()
        if case.get("generate", {}).get("status") == 200
    ]


def sse_events(text: str) -> list[Any]:
    """The decoded data of each server-sent event; `[DONE]` as it is."""
    events = []
    for block in text.split("\n\n"):
        if block:
            data = block.removeprefix("data: ")
            events.append(data if data == "[DONE]" else json.loads(data))
    return events


def keys(value: object) -> object:
    """The key order of an answer, lists by their first item; values are left out."""
    if isinstance(value, dict):
        return {key: keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [keys(item) for item in value[:1]]
    return None


def all_spans() -> set[tuple[int, ...]]:
    """Every block the captured worker w1 stored, as all tokens up to its end."""
    names = ("w1_kv_events_replay_dealer", "w1_kv_events_live_pubconnect")
    return spans(event for name in names for batch in batches(name) for event in batch)


def spans(stored: Iterable[dict[str, Any]]) -> set[tuple[int, ...]]:
    """Blocks of stored events, each as all tokens from the root up to its end."""
    known: dict[Any, tuple[int, ...]] = {None: ()}
    for event in stored:
        size, span = event["block_size"], known[event["parent_block_hash"]]
        for number, value in enumerate(event["block_hashes"]):
            span += tuple(event["token_ids"][number * size : (number + 1) * size])
            known[value] = span
    return set(known.values()) - {()}
