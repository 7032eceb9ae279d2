"""The options of a simulated worker: one frozen record."""

import re
from collections.abc import Sequence

import msgspec

from simworker.engine_settings import EngineSettings
from simworker.faults.record import BadFaults, Faults, read_faults
from simworker.hashing import DEFAULT_SEED, Identity
from simworker.layouts import LAYOUTS

# Tokens per block where none are asked for: what each engine ships with, but for
# SGLang, whose pages of one token are rarely left so.
BLOCK_SIZES = {"vllm": 16, "trtllm": 32, "sglang": 64}
ENGINES = tuple(BLOCK_SIZES)
APIS = ("all", "tokens")

_ENDPOINT = re.compile(r"tcp://(?:[^:\[\]]+|\[[^\]]+\]):[0-9]{1,5}")
_MANY = 1 << 22
_FAST = 1e9
_RANGES: dict[str, tuple[float, float]] = {
    "block_size": (1, _MANY),
    "blocks": (2, _MANY),
    "host_blocks": (0, _MANY),
    "data_parallel_size": (1, 64),
    "event_buffer": (1, _MANY),
    "replay_batches": (1, _MANY),
    "max_running": (1, _MANY),
    "max_num_batched_tokens": (1, _MANY),
    "prefill_rate": (0.001, _FAST),
    "decode_rate": (0.001, _FAST),
    "speed": (0.001, _FAST),
}


class BadOptions(ValueError):
    """Options that cannot be used: one line."""


class PublisherOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how events are sent. A port of 0 is one the system chooses.

    `connect` is where to connect to instead of binding a port. `legacy_replay` leaves
    the topic out of replay messages, as vLLM < 0.26 did.
    """

    host: str = "127.0.0.1"
    port: int = 0
    connect: str | None = None
    replay_port: int | None = None
    topic: str = ""
    buffer_batches: int = 10_000
    high_water_mark: int = 100_000
    legacy_replay: bool = False


class SimOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a simulated worker is told. Field names are the option names.

    `model` None is the built-in demo model. `api` "tokens": vLLM's `--tokens-only`,
    token ids in and out, and no chats; stop strings are refused. Ports of 0 are chosen
    by the system.
    Rates are tokens/s and, like all times, are scaled by `speed`. `block_size` None is
    the engine's own. `lora_modules` are the adapters of vLLM and of SGLang, by whatever
    option; to TensorRT-LLM each request brings its own. `host_blocks` are behind the
    GPU, one tier of them; `attention_windows` (tokens) make a KV cache group each,
    beside that of full attention.

    Events: `event_layout` is one of `layouts.LAYOUTS`; `bigrams` is SGLang's way with
    EAGLE, `bare_offload` vLLM's with some connectors; `tails`: a last block that is not
    full is cached too; `event_buffer` (events), `event_hash_algo` and
    `render_fingerprint` are TensorRT-LLM's. `faults` is JSON.
    """

    engine: str = "vllm"
    api: str = "all"
    model: str | None = None
    chat_template: str | None = None
    served_model_name: tuple[str, ...] = ()
    lora_modules: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    block_size: int | None = None
    blocks: int = 8192
    host_blocks: int = 0
    attention_windows: tuple[int, ...] = ()
    data_parallel_size: int = 1
    max_model_len: int | None = None
    prefill_rate: float = 20_000.0
    decode_rate: float = 50.0
    max_running: int = 64
    max_num_batched_tokens: int = 8192
    speed: float = 1.0
    kv_events: bool = True
    kv_events_port: int = 0
    kv_events_connect: str | None = None
    kv_events_topic: str = "kv-events"
    event_layout: str = "maps"
    event_buffer: int = 32_768
    event_hash_algo: str = "v1_block_key"
    bigrams: bool = False
    bare_offload: bool = False
    tails: bool = False
    faults: str = "{}"
    replay_port: int | None = None
    replay_batches: int = 10_000
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
                raise BadOptions(f"--{flag(name)} {text}")
        for name in ("port", "kv_events_port", "replay_port"):
            if not 0 <= (getattr(self, name) or 0) <= 65_535:
                raise BadOptions(f"--{flag(name)} must be a port number")
        if "" in self.served_model_name:
            raise BadOptions("--served-model-name must not be empty")
        self._check_engine()
        try:
            read_faults(self.faults)
        except BadFaults as error:
            raise BadOptions(f"--faults: {error}") from error

    def _check_engine(self) -> None:
        """Raise BadOptions for what this engine does not have."""
        if self.lora_modules and self.engine == "trtllm":
            raise BadOptions("--lora-modules: requests bring TensorRT-LLM's adapters")
        if self.api not in APIS:
            raise BadOptions(f"--api must be one of: {', '.join(APIS)}")
        if self.api != "all" and self.engine != "vllm":
            raise BadOptions("--api tokens: only vLLM's is simulated")
        if self.bigrams and self.engine != "sglang":
            raise BadOptions("--bigrams: only SGLang tells pairs of tokens")
        if self.event_layout not in LAYOUTS:
            raise BadOptions(f"--event-layout must be one of: {', '.join(LAYOUTS)}")
        connect = self.kv_events_connect
        if connect is not None and not _ENDPOINT.fullmatch(connect):
            raise BadOptions(f"--kv-events-connect {connect}: not tcp://HOST:PORT")
        if any(window < 1 for window in self.attention_windows):
            raise BadOptions("--attention-windows must be at least 1")

    def faults_at_start(self) -> Faults:
        """The faults to play from the start. Raises BadFaults."""
        return read_faults(self.faults)

    def engine_settings(self, *, output_at_end: bool = False) -> EngineSettings:
        """The scheduler's share of the options."""
        return EngineSettings(
            prefill_rate=self.prefill_rate,
            decode_rate=self.decode_rate,
            max_running=self.max_running,
            max_step_tokens=self.max_num_batched_tokens,
            speed=self.speed,
            output_at_end=output_at_end,
            tails=self.tails,
        )

    def publisher_options(self, rank: int = 0) -> PublisherOptions:
        """The share of a rank's event publisher: its ports count up with the rank."""
        return PublisherOptions(
            host=self.host,
            port=_of_rank(self.kv_events_port, rank) or 0,
            connect=_connect(self.kv_events_connect, rank),
            replay_port=_of_rank(self.replay_port, rank),
            topic=self.kv_events_topic,
            buffer_batches=self.replay_batches,
            legacy_replay=self.legacy_replay,
        )


def read_adapters(modules: Sequence[str]) -> dict[str, Identity]:
    """Name to adapter, of NAME=PATH each. Raises BadOptions for one that is not."""
    adapters = {}
    for item in modules:
        name, equals, path = item.partition("=")
        if not (name and equals and path):
            raise BadOptions(f"--lora-modules {item}: not NAME=PATH")
        adapters[name] = Identity(adapter=name, adapter_path=path)
    return adapters


def _of_rank(port: int | None, rank: int) -> int | None:
    return port + rank if port else port


def _connect(endpoint: str | None, rank: int) -> str | None:
    if endpoint is None:
        return None
    host, _, port = endpoint.rpartition(":")
    return f"{host}:{int(port) + rank}"


def flag(name: str) -> str:
    """An option's name on the command line."""
    return name.replace("_", "-")
