"""The command line of `sim-worker`."""

import argparse
from collections.abc import Sequence
from typing import Any

from simworker.faults.record import Faults
from simworker.faults.restart import Restart
from simworker.hashing import ALGORITHMS
from simworker.layouts import LAYOUTS
from simworker.options import APIS, ENGINES, SimOptions, flag
from simworker.trtllm.hashing import ALGORITHMS as TRTLLM_ALGORITHMS

_HELP: dict[str, tuple[Any, str]] = {
    "model": (str, "model directory with tokenizer and template (default: built in)"),
    "host": (str, "address to listen on"),
    "port": (int, "port to listen on, 0 for a free one"),
    "chat_template": (str, "chat template, a file or its text"),
    "block_size": (int, "tokens per KV block (default: the engine's)"),
    "blocks": (int, "KV blocks of each rank's cache, one of them reserved"),
    "host_blocks": (int, "KV blocks of the tier behind the GPU, 0 for none"),
    "data_parallel_size": (int, "ranks, each with a cache and an event stream"),
    "max_model_len": (int, "most tokens of a request (default: what fits)"),
    "prefill_rate": (float, "uncached prompt tokens per second"),
    "decode_rate": (float, "output tokens per second of each request"),
    "max_running": (int, "requests that run at once"),
    "max_num_batched_tokens": (int, "most prompt tokens of one step"),
    "speed": (float, "divides every simulated time"),
    "kv_events_port": (int, "port of the KV event stream, 0 for a free one"),
    "kv_events_connect": (
        str,
        "publish by connecting to this endpoint, tcp://HOST:PORT, instead of binding "
        "a port; a rank's number is added to its port",
    ),
    "kv_events_topic": (str, "topic of the KV event stream"),
    "event_buffer": (int, "events a TensorRT-LLM worker keeps until they are drained"),
    "replay_port": (int, "port for event replay, 0 for a free one (default: none)"),
    "replay_batches": (int, "batches kept for replay"),
    "faults": (
        str,
        "faults to play from the start, as JSON; also POST /sim/faults (fields: "
        f"{', '.join(Faults.__struct_fields__)})",
    ),
    "hash_seed": (str, "seed of the block hashes"),
    "render_fingerprint": (
        str,
        "how a TensorRT-LLM worker tells its render fingerprint: equal, missing, "
        "incomplete, differs:FIELD, slow[:SECONDS], error, unauthorised, garbage",
    ),
    "render_fingerprint_file": (
        str,
        "the fingerprint to tell, as another renderer tells it (default: our own)",
    ),
    "answers": (
        str,
        'fixed answers, one a line: {"match": TEXT, "output_text": TEXT}; instead '
        'of "match" also "prompt_ids" or "messages", of the text also "output_ids"',
    ),
}


EPILOG = (
    "While it runs, POST /sim/faults plays other faults (JSON as that of --faults; {} "
    "ends them), POST /sim/restart restarts it in place (fields: "
    f"{', '.join(Restart.__struct_fields__)}), POST /sim/reset empties its caches. "
    "?rank=N names one rank, but for a restart. GET /sim/cache tells what it really "
    "holds, GET /sim/faults what was played, GET /sim/stats what it did."
)

_CHOICES: dict[str, tuple[Sequence[str], str]] = {
    "api": (APIS, "tokens: /inference/v1/generate alone; chat routes answer 404"),
    "hash_algo": (ALGORITHMS, "vLLM's block hash algorithm"),
    "event_hash_algo": (TRTLLM_ALGORITHMS, "TensorRT-LLM's block hash algorithm"),
    "event_layout": (
        tuple(LAYOUTS),
        "events as maps, or as arrays as since this release of vLLM",
    ),
}


_LISTS: dict[str, tuple[Any, str, str]] = {
    "served_model_name": (
        str,
        "NAME",
        "names requests may ask for (default: the model's)",
    ),
    "lora_modules": (str, "NAME", "adapters to serve, NAME=PATH"),
    "attention_windows": (
        int,
        "N",
        "a KV cache group more for each sliding window of so many tokens",
    ),
}

_SWITCHES: dict[str, str] = {
    "legacy_replay": "replay without topic, as vLLM before 0.26",
    "bytes_hashes": "events carry whole digests instead of integers",
    "bigrams": "SGLang's events tell pairs of tokens, as with EAGLE",
    "bare_offload": "vLLM's events of the tier behind the GPU tell no tokens",
    "tails": "a request's last block is cached though it is not full",
    "dev_mode": "serve /reset_prefix_cache",
    "kv_events": "publish no KV events, as engines ship",
    "prompt_tokens_details": "usage does not tell the cached tokens",
}
"""What is on unless told otherwise has a flag that begins with `--no-`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `sim-worker` to `parser`."""
    parser.epilog = EPILOG
    defaults = SimOptions()
    add = parser.add_argument
    add("--engine", choices=ENGINES, default=defaults.engine)
    for name, (kind, text) in _HELP.items():
        default = getattr(defaults, name)
        shown = text if default is None else f"{text} (default: %(default)s)"
        add(f"--{flag(name)}", type=kind, default=default, metavar="X", help=shown)
    for name, (kind, metavar, text) in _LISTS.items():
        add(
            f"--{flag(name)}",
            nargs="+",
            type=kind,
            default=[],
            metavar=metavar,
            help=text,
        )
    for name, (choices, text) in _CHOICES.items():
        default = getattr(defaults, name)
        shown = f"{text} (default: %(default)s)"
        add(f"--{flag(name)}", choices=choices, default=default, help=shown)
    for name, text in _SWITCHES.items():
        is_on = getattr(defaults, name)
        words = f"--no-{flag(name)}" if is_on else f"--{flag(name)}"
        add(words, dest=name, action="store_const", const=not is_on, default=is_on,
            help=text)  # fmt: skip


def from_args(args: argparse.Namespace) -> SimOptions:
    """The record of a parsed command line. Raises BadOptions."""
    values = {name: getattr(args, name) for name in SimOptions.__struct_fields__}
    for name in _LISTS:
        values[name] = tuple(values[name])
    options = SimOptions(**values)
    options.check()
    return options
