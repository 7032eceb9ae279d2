"""What a simulated SGLang worker says of itself."""

import json
from typing import Any

from simworker.api import Parts

Json = dict[str, Any]

VERSION = "0.5.23"


def model_card(parts: Parts, name: str) -> Json:
    """The entry of `/v1/models`."""
    return {
        "id": name,
        "object": "model",
        "created": int(parts.started),
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
        "page_size": parts.cache.block_size,
        "dp_size": 1,
        "dcp_size": 1,
        "enable_cache_report": parts.service.tell_cached,
        "enable_http2": False,
        "kv_events_config": None,
        "speculative_algorithm": None,
        "max_running_requests": parts.options.max_running,
        "max_total_num_tokens": _capacity(parts),
        "internal_states": [{"weight_version": "default"}],
        "startup_time": parts.started,
        "version": VERSION,
        "frontend": "python",
        "kv_events": None,
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
    engine, used = parts.runner.engine, parts.cache.used * parts.cache.block_size
    rank = {
        "timestamp": now,
        "dp_rank": 0,
        "num_running_reqs": engine.running,
        "num_waiting_reqs": engine.waiting,
        "num_used_tokens": used,
        "num_total_tokens": used,
        "max_total_num_tokens": _capacity(parts),
        "max_running_requests": parts.options.max_running,
        "token_usage": round(used / _capacity(parts), 4),
    }
    return {"timestamp": now, "version": VERSION, "loads": [rank]}


def _capacity(parts: Parts) -> int:
    return parts.cache.capacity * parts.cache.block_size


def _architectures(parts: Parts) -> list[str] | None:
    try:
        config = json.loads((parts.renderer.model.path / "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    found = config.get("architectures") if isinstance(config, dict) else None
    return found if isinstance(found, list) else None
