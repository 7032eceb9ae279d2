"""The options of a simulated worker: one frozen record and its command line."""

import argparse
from typing import Any

import msgspec

from simworker.engine import EngineSettings
from simworker.hashing import ALGORITHMS, DEFAULT_SEED
from simworker.publisher import PublisherOptions

# Tokens per block where none are asked for: what each engine ships with, but for
# SGLang, whose pages of one token are rarely left so.
BLOCK_SIZES = {"vllm": 16, "trtllm": 32, "sglang": 64}
ENGINES = tuple(BLOCK_SIZES)

_MANY = 1 << 22
_FAST = 1e9
_RANGES: dict[str, tuple[float, float]] = {
    "block_size": (1, _MANY),
    "blocks": (2, _MANY),
    "max_running": (1, _MANY),
    "max_num_batched_tokens": (1, _MANY),
    "prefill_rate": (0.001, _FAST),
    "decode_rate": (0.001, _FAST),
    "speed": (0.001, _FAST),
}


class BadOptions(ValueError):
    """Options that cannot be used: one line."""


class SimOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a simulated worker is told. Field names are the option names.

    `model` None is the built-in demo model. Ports of 0 are chosen by the system.
    Rates are tokens/s and, like all times, are scaled by `speed`. `block_size` None is
    the engine's own. Only vLLM workers have adapters, and publish KV events;
    `render_fingerprint` and its file are TensorRT-LLM's (`trtllm/fingerprint.py`).
    """

    engine: str = "vllm"
    model: str | None = None
    chat_template: str | None = None
    served_model_name: tuple[str, ...] = ()
    lora_modules: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    block_size: int | None = None
    blocks: int = 8192
    max_model_len: int | None = None
    prefill_rate: float = 20_000.0
    decode_rate: float = 50.0
    max_running: int = 64
    max_num_batched_tokens: int = 8192
    speed: float = 1.0
    kv_events: bool = True
    kv_events_port: int = 0
    kv_events_topic: str = "kv-events"
    replay_port: int | None = None
    legacy_replay: bool = False
    hash_algo: str = "sha256"
    hash_seed: str = DEFAULT_SEED
    bytes_hashes: bool = False
    answers: str | None = None
    prompt_tokens_details: bool = True
    dev_mode: bool = False
    render_fingerprint: str = "equal"
    render_fingerprint_file: str | None = None

    @property
    def tokens_per_block(self) -> int:
        """`block_size`, or the engine's own."""
        return self.block_size or BLOCK_SIZES[self.engine]

    @property
    def publishes(self) -> bool:
        """Whether there are KV events."""
        return self.kv_events and self.engine == "vllm"

    def check(self) -> None:
        """Raise BadOptions for a value that makes no sense."""
        if self.engine not in ENGINES:
            raise BadOptions(f"--engine must be one of: {', '.join(ENGINES)}")
        for name, (least, most) in _RANGES.items():
            asked = getattr(self, name)
            if asked is not None and not least <= asked <= most:
                text = f"must be at least {least}"
                if asked > most:
                    text = f"must be at most {most}"
                raise BadOptions(f"--{_flag(name)} {text}")
        for name in ("port", "kv_events_port", "replay_port"):
            if not 0 <= (getattr(self, name) or 0) <= 65_535:
                raise BadOptions(f"--{_flag(name)} must be a port number")
        if "" in self.served_model_name:
            raise BadOptions("--served-model-name must not be empty")
        if self.lora_modules and self.engine != "vllm":
            raise BadOptions("--lora-modules: only vLLM's adapters are simulated")

    def engine_settings(self) -> EngineSettings:
        """The scheduler's share of the options."""
        return EngineSettings(
            prefill_rate=self.prefill_rate,
            decode_rate=self.decode_rate,
            max_running=self.max_running,
            max_step_tokens=self.max_num_batched_tokens,
            speed=self.speed,
        )

    def publisher_options(self) -> PublisherOptions:
        """The event publisher's share of the options."""
        return PublisherOptions(
            host=self.host,
            port=self.kv_events_port,
            replay_port=self.replay_port,
            topic=self.kv_events_topic,
            legacy_replay=self.legacy_replay,
        )


def _flag(name: str) -> str:
    return name.replace("_", "-")


_HELP: dict[str, tuple[Any, str]] = {
    "model": (str, "model directory with tokenizer and template (default: built in)"),
    "host": (str, "address to listen on"),
    "port": (int, "port to listen on, 0 for a free one"),
    "chat_template": (str, "chat template, a file or its text"),
    "block_size": (int, "tokens per KV block (default: the engine's)"),
    "blocks": (int, "KV blocks of the cache, one of them reserved"),
    "max_model_len": (int, "most tokens of a request (default: what fits)"),
    "prefill_rate": (float, "uncached prompt tokens per second"),
    "decode_rate": (float, "output tokens per second of each request"),
    "max_running": (int, "requests that run at once"),
    "max_num_batched_tokens": (int, "most prompt tokens of one step"),
    "speed": (float, "divides every simulated time"),
    "kv_events_port": (int, "port of the KV event stream, 0 for a free one"),
    "kv_events_topic": (str, "topic of the KV event stream"),
    "replay_port": (int, "port for event replay, 0 for a free one (default: none)"),
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
        'fixed answers, one a line: {"match": TEXT, "output_ids": [...]}; instead '
        'of "match" also "prompt_ids" or "messages"',
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `sim-worker` to `parser`."""
    defaults = SimOptions()
    parser.add_argument("--engine", choices=ENGINES, default=defaults.engine)
    for name, (kind, text) in _HELP.items():
        default = getattr(defaults, name)
        shown = text if default is None else f"{text} (default: %(default)s)"
        parser.add_argument(
            f"--{_flag(name)}", type=kind, default=default, metavar="X", help=shown
        )
    for name, text in (
        (
            "served_model_name",
            "names requests may ask for (default: the model's)",
        ),
        ("lora_modules", "adapters to serve, NAME=PATH"),
    ):
        parser.add_argument(
            f"--{_flag(name)}", nargs="+", default=[], metavar="NAME", help=text
        )
    parser.add_argument(
        "--hash-algo", choices=ALGORITHMS, default=defaults.hash_algo,
        help="block hash algorithm (default: %(default)s)",
    )  # fmt: skip
    for name, text in (
        ("legacy_replay", "replay without topic, as vLLM before 0.26"),
        ("bytes_hashes", "events carry whole digests instead of integers"),
        ("dev_mode", "serve /reset_prefix_cache"),
    ):
        parser.add_argument(f"--{_flag(name)}", action="store_true", help=text)
    for name, text in (
        ("kv_events", "publish no KV events, as engines ship"),
        ("prompt_tokens_details", "usage does not tell the cached tokens"),
    ):
        parser.add_argument(
            f"--no-{_flag(name)}", dest=name, action="store_false", help=text
        )


def from_args(args: argparse.Namespace) -> SimOptions:
    """The record of a parsed command line. Raises BadOptions."""
    values = {name: getattr(args, name) for name in SimOptions.__struct_fields__}
    for name in ("served_model_name", "lora_modules"):
        values[name] = tuple(values[name])
    options = SimOptions(**values)
    options.check()
    return options
