"""The `/metrics` page of a simulated vLLM worker: the names a gateway reads.

Written by hand, since the values are the engine's own counters: nothing is counted
twice.
"""

from collections.abc import Callable

import msgspec

from simworker.prometheus import family, histogram
from simworker.rank import Rank, Ranks
from simworker.totals import Totals


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of `vllm:cache_config_info`."""

    block_size: int
    num_gpu_blocks: int
    prefix_caching_hash_algo: str

    def labels(self, engine: str) -> dict[str, str]:
        """All of them as text."""
        return {
            "block_size": str(self.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": "True",
            "engine": engine,
            "kv_cache_size_tokens": str(self.block_size * self.num_gpu_blocks),
            "num_gpu_blocks": str(self.num_gpu_blocks),
            "prefix_caching_hash_algo": self.prefix_caching_hash_algo,
            "sliding_window": "None",
        }


def page(ranks: Ranks, totals: Totals, *, model: str, config: CacheConfig) -> str:
    """The whole page in Prometheus' text format; requests are counted at rank 0."""
    each = [(_labels(rank, model), rank) for rank in ranks]
    lines = [*family("process_start_time_seconds", "gauge", [({}, ranks.started)])]
    for name, kind, value in _OF_RANKS:
        lines += family(name, kind, [(labels, value(rank)) for labels, rank in each])
    for name, of in _PREFILLS:
        lines += histogram(name, [(labels, *of(rank)) for labels, rank in each])
    first = each[0][0]
    aborted = sum(rank.runner.aborted for rank in ranks)
    prompts = [(first, totals.prompt_tokens)]
    lines += family("vllm:prompt_tokens_total", "counter", prompts)
    generated = [(first, totals.generated_tokens)]
    lines += family("vllm:generation_tokens_total", "counter", generated)
    reasons = {**totals.finished, "abort": aborted}
    ended = [({"finished_reason": why} | first, n) for why, n in reasons.items()]
    lines += family("vllm:request_success_total", "counter", ended)
    configs = [(config.labels(str(rank.number)), 1) for rank in ranks]
    lines += family("vllm:cache_config_info", "gauge", configs)
    return "\n".join(lines) + "\n"


_OF_RANKS: tuple[tuple[str, str, Callable[[Rank], float]], ...] = (
    ("vllm:num_requests_running", "gauge", lambda rank: rank.engine.running),
    ("vllm:num_requests_waiting", "gauge", lambda rank: rank.engine.waiting),
    (
        "vllm:kv_cache_usage_perc", "gauge",
        lambda rank: rank.cache.used / rank.cache.capacity,
    ),
    (
        "vllm:prefix_cache_queries_total", "counter",
        lambda rank: rank.engine.queried_tokens,
    ),
    ("vllm:prefix_cache_hits_total", "counter", lambda rank: rank.engine.hit_tokens),
    ("vllm:num_preemptions_total", "counter", lambda rank: rank.engine.preemptions),
)  # fmt: skip


_PREFILLS: tuple[tuple[str, Callable[[Rank], tuple[int, float]]], ...] = (
    (
        "vllm:request_prefill_time_seconds",
        lambda rank: (rank.engine.prefills.count, rank.engine.prefills.seconds),
    ),
    (
        "vllm:request_prefill_kv_computed_tokens",
        lambda rank: (rank.engine.prefills.count, rank.engine.prefills.tokens),
    ),
)


def _labels(rank: Rank, model: str) -> dict[str, str]:
    return {"engine": str(rank.number), "model_name": model}
