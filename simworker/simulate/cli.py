"""`kv-gateway simulate`: one JSON line per policy, and a table of them all."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence

import msgspec

from simworker.simulate.options import (
    BadOptions,
    SimulateOptions,
    add_arguments,
    from_args,
)
from simworker.simulate.prompts import BlockCutter
from simworker.simulate.replay import Outcome, Replay, hit_ceiling, workload
from simworker.simulate.timeline import TooLate
from simworker.simulate.workload import BadWorkload

__all__ = ["add_arguments", "run"]

COLUMNS = (
    ("policy", "policy", "{:<16}"),
    ("hit rate", "hit_rate", "{:>8.1%}"),
    ("TTFT mean", "ttft_mean_s", "{:>9.3f}"),
    ("p50", "ttft_p50_s", "{:>8.3f}"),
    ("p90", "ttft_p90_s", "{:>8.3f}"),
    ("p99", "ttft_p99_s", "{:>8.3f}"),
    ("tokens/s", "output_tokens_s", "{:>8.0f}"),
    ("imbalance", "imbalance", "{:>9.2f}"),
    ("success", "success_rate", "{:>8.1%}"),
)


def run(args: argparse.Namespace) -> int:
    """Replay the workload by each policy asked for; the exit status."""
    logging.basicConfig(level=logging.ERROR)  # what a gateway would log is no news
    try:
        outcomes = _replay(from_args(args))
    except (BadOptions, BadWorkload, TooLate) as error:
        sys.stderr.write(f"kv-gateway simulate: {error}\n")
        return 2
    if args.compare:
        sys.stderr.write(table(outcomes))
    return 0


def _replay(options: SimulateOptions) -> list[Outcome]:
    """What each policy made of it, told as soon as it is known."""
    asked = workload(options)
    cutter = BlockCutter(options.block_size)
    best = hit_ceiling(asked, cutter)
    outcomes = []
    for policy in options.policies:
        begun = time.monotonic()
        outcome = Replay(options, asked, policy, cutter).run(best)
        took_s = time.monotonic() - begun
        sys.stderr.write(f"{policy}: {len(asked)} requests in {took_s:.1f} s\n")
        sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")
        sys.stdout.flush()
        outcomes.append(outcome)
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes side by side; times in seconds."""
    widths = [
        len(form.format(0 if name != "policy" else "")) for _, name, form in COLUMNS
    ]
    heads = zip(COLUMNS, widths, strict=True)
    head = " ".join(
        title.ljust(width) if name == "policy" else title.rjust(width)
        for (title, name, _), width in heads
    )
    rows = [
        " ".join(form.format(getattr(outcome, name)) for _, name, form in COLUMNS)
        for outcome in outcomes
    ]
    first = outcomes[0]
    facts = f"{first.requests} requests, hit rate at best {first.ceiling:.1%}"
    return "\n".join([facts, head, *rows, ""])
