"""The options of a simulation: one frozen record and its command line."""

import argparse
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from router.policies import POLICIES
from simworker.simulate.faults import FAULTS, Fault, read_fault
from simworker.simulate.synthetic import SYNTHETIC
from simworker.simulate.worker import Speed

FORMATS = ("mooncake", "azure")
SYNTHETIC_PREFIX = "synthetic:"
MOST_WORKERS = 4_096
"""Each decision, and each second, costs time for each worker."""
LEAST_RATE = 1e-9


class BadOptions(ValueError):
    """Options that do not go together; the text says which."""


class SimulateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is replayed on which fleet. Sizes in tokens, times in seconds."""

    trace: Path | None = None
    format: str = "synthetic:chat4"
    workers: int = 8
    cache_tokens: int = 307_328
    block_size: int = 16
    policies: tuple[str, ...] = ("kv_cache_aware",)
    arrival_scale: float = 1.0
    speed: Speed = Speed()
    event_delay_s: float = 0.0
    kv_events: bool = True
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    limit: int | None = None

    def __post_init__(self) -> None:
        """Raise BadOptions."""
        for fault in self.faults:
            if fault.worker >= self.workers:
                raise BadOptions(
                    f"--fault names worker {fault.worker}, but the {self.workers} are "
                    f"counted from 0"
                )
        if self.synthetic is not None and self.trace is not None:
            raise BadOptions("--trace FILE needs --format mooncake or azure")

    @property
    def synthetic(self) -> str | None:
        """The name of the generator, if no file is replayed."""
        if self.format.startswith(SYNTHETIC_PREFIX):
            return self.format.removeprefix(SYNTHETIC_PREFIX)
        return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Every option of the command."""
    names = ", ".join(sorted(SYNTHETIC))
    add, flag = partial(_add_value, parser), parser.add_argument
    flag("--trace", type=Path, metavar="FILE", help="the trace to replay")
    add("--format", _format, "synthetic:chat4", "mooncake|azure|synthetic:NAME",
        f"what --trace is, or what to replay in its place: {names}")  # fmt: skip
    add("--workers", _worker_count, 8, "N")
    add("--cache-tokens", _whole, 307_328, "N", "KV cache of each worker")
    add("--block-size", _whole, 16, "N")
    flag("--policy", choices=sorted(POLICIES), default="kv_cache_aware",
         help="how a worker is chosen (default: %(default)s)")  # fmt: skip
    flag("--compare", action="store_true", help="every policy, and a table on stderr")
    add("--arrival-scale", _positive, 1.0, "X", "arrival times are divided by X")
    _add_worker_arguments(parser)
    add("--seed", int, 0, "S")
    flag("--limit", type=_whole, metavar="N",
         help="only the first N requests (default: all)")  # fmt: skip


def _add_worker_arguments(parser: argparse.ArgumentParser) -> None:
    speed = Speed()
    add = partial(_add_value, parser)
    add("--prefill-rate", _rate, speed.prefill_rate, "R",
        "prompt tokens a worker prefills per second")  # fmt: skip
    add("--prefill-cost", _not_negative, speed.prefill_cost_s, "SECONDS",
        "of each prefill besides its tokens")  # fmt: skip
    add("--decode-rate", _rate, speed.decode_rate, "R",
        "tokens per second of one answer")  # fmt: skip
    add("--max-running", _whole, speed.max_running, "N",
        "requests a worker runs at once")  # fmt: skip
    add("--event-delay", _not_negative, 0.0, "MS",
        "milliseconds until a KV event arrives")  # fmt: skip
    parser.add_argument(
        "--no-kv-events", action="store_true", help="the workers publish no events"
    )
    parser.add_argument(
        "--fault", type=_fault, action="append", default=[], metavar="FAULT",
        help=f"what goes wrong; repeatable: {', '.join(FAULTS)}",
    )  # fmt: skip


def _add_value(
    parser: argparse.ArgumentParser,
    flag: str,
    kind: Callable[[str], object],
    default: object,
    metavar: str,
    text: str = "",
) -> None:
    shown = f"{text} (default: %(default)s)".strip()
    parser.add_argument(flag, type=kind, default=default, metavar=metavar, help=shown)


def from_args(args: argparse.Namespace) -> SimulateOptions:
    """The record of a parsed command line."""
    return SimulateOptions(
        trace=args.trace,
        format=args.format,
        workers=args.workers,
        cache_tokens=args.cache_tokens,
        block_size=args.block_size,
        policies=tuple(POLICIES) if args.compare else (args.policy,),
        arrival_scale=args.arrival_scale,
        speed=Speed(
            prefill_rate=args.prefill_rate,
            prefill_cost_s=args.prefill_cost,
            decode_rate=args.decode_rate,
            max_running=args.max_running,
        ),
        event_delay_s=args.event_delay / 1000,
        kv_events=not args.no_kv_events,
        faults=tuple(args.fault),
        seed=args.seed,
        limit=args.limit,
    )


def _format(text: str) -> str:
    name = text.removeprefix(SYNTHETIC_PREFIX)
    if text in FORMATS or (name != text and name in SYNTHETIC):
        return text
    known = [*FORMATS, *(SYNTHETIC_PREFIX + name for name in sorted(SYNTHETIC))]
    raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(known)}")


def _fault(text: str) -> Fault:
    try:
        return read_fault(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _worker_count(text: str) -> int:
    count = _whole(text)
    if count > MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MOST_WORKERS}")
    return count


def _rate(text: str) -> float:
    value = _positive(text)
    if value < LEAST_RATE:
        raise argparse.ArgumentTypeError(f"{text!r} is less than {LEAST_RATE}")
    return value


def _positive(text: str) -> float:
    value = _not_negative(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return value


def _not_negative(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not 0 or above")
    return value
