"""What a simulated SGLang worker says of itself."""

import json
from collections.abc import Mapping
from typing import Any

from simworker.api import Parts
from simworker.hashing import Identity
from simworker.rank import Rank

Json = dict[str, Any]

VERSION = "0.5.23"


def model_cards(
    parts: Parts, name: str, adapters: Mapping[str, Identity]
) -> list[Json]:
    """The entries of `/v1/models`: the model, and each adapter."""
    card = _model_card(parts, name)
    loaded = [
        card | {"id": id_, "root": adapter.adapter_path, "parent": name}
        for id_, adapter in adapters.items()
    ]
    return [card, *({**each, "max_model_len": None} for each in loaded)]


def _model_card(parts: Parts, name: str) -> Json:
    return {
        "id": name,
        "object": "model",
        "created": int(parts.ranks.started),
        "owned_by": "sglang",
        "root": name,
        "parent": None,
        "max_model_len": parts.max_model_len,
    }


def server_info(parts: Parts, name: str) -> Json:
    """The body of `/server_info`: the arguments that tell workers apart, and state."""
    path = str(parts.renderer.model.path)
    return {
        "model_path": path,
        "tokenizer_path": path,
        "revision": None,
        "served_model_name": name,
        "chat_template": parts.options.chat_template,
        "completion_template": None,
        "context_length": parts.options.max_model_len,
        "reasoning_parser": None,
        "tool_call_parser": None,
        "page_size": parts.ranks.block_size,
        "dp_size": len(parts.ranks),
        "dcp_size": 1,
        "enable_cache_report": parts.service.tell_cached,
        "enable_http2": False,
        "kv_events_config": _config(parts),
        "speculative_algorithm": "EAGLE3" if parts.options.bigrams else None,
        "max_running_requests": parts.options.max_running,
        "max_total_num_tokens": _capacity(parts),
        "internal_states": [{"weight_version": "default"}] * len(parts.ranks),
        "startup_time": parts.ranks.started,
        "version": VERSION,
        "frontend": "python",
        "kv_events": kv_events(parts),
    }


def model_info(parts: Parts, name: str) -> Json:
    """The body of `/model_info`."""
    path = str(parts.renderer.model.path)
    return {
        "model_path": path,
        "served_model_name": name,
        "tokenizer_path": path,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": "auto",
        "reasoning_parser": None,
        "tool_call_parser": None,
        "disaggregation_mode": "null",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": parts.renderer.model.model_type,
        "architectures": _architectures(parts),
    }


def loads(parts: Parts, now: float) -> Json:
    """The body of `/v1/loads`; `now` is in Unix seconds."""
    ranks = [_load(parts, rank, now) for rank in parts.ranks]
    return {"timestamp": now, "version": VERSION, "loads": ranks}


def _load(parts: Parts, rank: Rank, now: float) -> Json:
    engine, used = rank.engine, rank.cache.used * rank.cache.block_size
    return {
        "timestamp": now,
        "dp_rank": rank.number,
        "num_running_reqs": engine.running,
        "num_waiting_reqs": engine.waiting,
        "num_waiting_uncached_tokens": engine.waiting_tokens,
        "num_used_tokens": used,
        "num_total_tokens": used,
        "max_total_num_tokens": _capacity(parts),
        "max_running_requests": parts.options.max_running,
        "token_usage": round(used / _capacity(parts), 4),
        "total_prefill_uncached_tokens": engine.prefills.tokens,
        "total_prefill_busy_us": round(engine.prefills.seconds * 1e6),
    }


def kv_events(parts: Parts) -> Json | None:
    """How to follow its events: ports of rank 0, to which a rank's number is added."""
    if not parts.ranks.publishers:
        return None
    first = parts.ranks.publishers[0]
    connect = parts.options.kv_events_connect
    host = connect.removeprefix("tcp://").rpartition(":")[0] if connect else "*"
    told = {
        "publisher": "zmq",
        "endpoint_host": host,
        "endpoint_port_base": first.port,
        "topic": parts.options.kv_events_topic,
        "block_size": parts.ranks.block_size,
        "dp_size": len(parts.ranks),
    }
    if first.replay_port:
        told["replay_endpoint_port_base"] = first.replay_port
    return told


def _config(parts: Parts) -> str | None:
    """The option that turned the events on, as the operator wrote it."""
    told = kv_events(parts)
    if told is None:
        return None
    host, port = told["endpoint_host"], told["endpoint_port_base"]
    config = {
        "publisher": "zmq",
        "endpoint": f"tcp://{host}:{port}",
        "topic": told["topic"],
    }
    if "replay_endpoint_port_base" in told:
        config["replay_endpoint"] = f"tcp://*:{told['replay_endpoint_port_base']}"
    return json.dumps(config)


def _capacity(parts: Parts) -> int:
    cache = parts.ranks[0].cache
    return cache.capacity * cache.block_size


def _architectures(parts: Parts) -> list[str] | None:
    try:
        config = json.loads((parts.renderer.model.path / "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    found = config.get("architectures") if isinstance(config, dict) else None
    return found if isinstance(found, list) else None
