"""The `/prometheus/metrics` page of a simulated TensorRT-LLM worker."""

from simworker.prometheus import family
from simworker.rank import Rank


def page(rank: Rank, model: str) -> str:
    """What a gateway reads of it, in Prometheus' text format."""
    labels = {"model_name": model, "engine_type": "undefined"}
    cache, engine = rank.cache, rank.engine
    gauges = {
        "num_requests_running": engine.running,
        "num_requests_waiting": engine.waiting,
        "kv_cache_utilization": cache.used / cache.capacity,
        "kv_cache_tokens_per_block": cache.block_size,
        "kv_cache_max_blocks": cache.capacity,
    }
    lines = [
        line
        for name, value in gauges.items()
        for line in family(f"trtllm_{name}", "gauge", [(labels, value)])
    ]
    return "\n".join(lines) + "\n"
