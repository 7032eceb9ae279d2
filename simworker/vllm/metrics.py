"""The `/metrics` page of a simulated vLLM worker: the names a gateway reads.

Written by hand, since the values are the engine's own counters: nothing is counted
twice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from simworker.rank import Rank, Ranks
from simworker.totals import Totals

Labels = Mapping[str, str]


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
    lines = [*_family("process_start_time_seconds", "gauge", [({}, ranks.started)])]
    for name, kind, value in _OF_RANKS:
        lines += _family(name, kind, [(labels, value(rank)) for labels, rank in each])
    first = each[0][0]
    aborted = sum(rank.runner.aborted for rank in ranks)
    prompts = [(first, totals.prompt_tokens)]
    lines += _family("vllm:prompt_tokens_total", "counter", prompts)
    generated = [(first, totals.generated_tokens)]
    lines += _family("vllm:generation_tokens_total", "counter", generated)
    reasons = {**totals.finished, "abort": aborted}
    ended = [({"finished_reason": why} | first, n) for why, n in reasons.items()]
    lines += _family("vllm:request_success_total", "counter", ended)
    configs = [(config.labels(str(rank.number)), 1) for rank in ranks]
    lines += _family("vllm:cache_config_info", "gauge", configs)
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


def _labels(rank: Rank, model: str) -> dict[str, str]:
    return {"engine": str(rank.number), "model_name": model}


def _family(
    name: str, kind: str, samples: Sequence[tuple[Labels, float]]
) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        shown = ",".join(f'{key}="{_escaped(item)}"' for key, item in labels.items())
        yield f"{name}{{{shown}}} {float(value)!r}" if shown else f"{name} {value!r}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
