"""The `/metrics` page of a simulated vLLM worker: the names a gateway reads.

Written by hand, since the values are the engine's own counters: nothing is counted
twice.
"""

from collections.abc import Iterator, Mapping

import msgspec

from simworker.cache import BlockCache
from simworker.engine import Engine
from simworker.totals import Totals

Labels = Mapping[str, str]


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of `vllm:cache_config_info`."""

    block_size: int
    num_gpu_blocks: int
    prefix_caching_hash_algo: str

    def labels(self) -> dict[str, str]:
        """All of them as text."""
        return {
            "block_size": str(self.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": "True",
            "engine": "0",
            "kv_cache_size_tokens": str(self.block_size * self.num_gpu_blocks),
            "num_gpu_blocks": str(self.num_gpu_blocks),
            "prefix_caching_hash_algo": self.prefix_caching_hash_algo,
            "sliding_window": "None",
        }


def page(
    engine: Engine,
    cache: BlockCache,
    totals: Totals,
    *,
    aborted: int,
    model: str,
    config: CacheConfig,
    started: float,
) -> str:
    """The whole page in Prometheus' text format; `started` is in Unix seconds."""
    labels = {"engine": "0", "model_name": model}
    usage = cache.used / cache.capacity
    lines = [
        *_gauge("process_start_time_seconds", started, {}),
        *_gauge("vllm:num_requests_running", engine.running, labels),
        *_gauge("vllm:num_requests_waiting", engine.waiting, labels),
        *_gauge("vllm:kv_cache_usage_perc", usage, labels),
        *_counter("vllm:prefix_cache_queries_total", engine.queried_tokens, labels),
        *_counter("vllm:prefix_cache_hits_total", engine.hit_tokens, labels),
        *_counter("vllm:num_preemptions_total", engine.preemptions, labels),
        *_counter("vllm:prompt_tokens_total", totals.prompt_tokens, labels),
        *_counter("vllm:generation_tokens_total", totals.generated_tokens, labels),
        "# TYPE vllm:request_success_total counter",
        *(
            _sample(
                "vllm:request_success_total", count, {"finished_reason": why} | labels
            )
            for why, count in {**totals.finished, "abort": aborted}.items()
        ),
        *_gauge("vllm:cache_config_info", 1, config.labels()),
    ]
    return "\n".join(lines) + "\n"


def _gauge(name: str, value: float, labels: Labels) -> Iterator[str]:
    yield f"# TYPE {name} gauge"
    yield _sample(name, value, labels)


def _counter(name: str, value: float, labels: Labels) -> Iterator[str]:
    yield f"# TYPE {name} counter"
    yield _sample(name, value, labels)


def _sample(name: str, value: float, labels: Labels) -> str:
    shown = ",".join(f'{key}="{_escaped(item)}"' for key, item in labels.items())
    return f"{name}{{{shown}}} {float(value)!r}" if shown else f"{name} {value!r}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
