"""The default policy against every other, and against the rules others publish.

Each workload is replayed on a virtual clock (`kv-gateway simulate`) for several seeds:
the synthetic ones, and the traces in `--traces DIR` where they are there. Prints a
table per workload, and for each rule the geometric mean of ours over theirs.
"""

import argparse
import math
import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from bench._published_rules import PUBLISHED
from router.policies import POLICIES
from simworker.simulate.options import SimulateOptions
from simworker.simulate.prompts import BlockCutter
from simworker.simulate.replay import Outcome, Replay, hit_ceiling, workload
from simworker.simulate.synthetic import SYNTHETIC
from simworker.simulate.worker import Speed

OURS = "kv_cache_aware"
LEAST_LOADED = "least_loaded"
MOONCAKE = "mooncake_conversation_trace.jsonl"
AZURE = "azure2023_conv.csv"
ALL = {**POLICIES, **PUBLISHED}
PREFILL_RATE = 20_480.0
"""Qwen3-32B on two H100, as llm-d measured it."""

ABOVE_BEST = (0.05, 0.005)
ABOVE_LEAST_LOADED = (0.01, 0.001)
"""What the default may be above another: a share of it, or seconds."""


class Run(msgspec.Struct, frozen=True):
    """One replay: a workload under a policy, with one seed."""

    workload: str
    options: SimulateOptions
    policy: str


class Mean(msgspec.Struct, frozen=True):
    """Outcomes of one policy, averaged over seeds."""

    success_rate: float
    hit_rate: float
    ttft_mean_s: float
    ttft_p90_s: float
    imbalance: float


def run(words: Sequence[str]) -> None:
    """Replay, print, and exit with status 1 where an aim is missed."""
    args = _arguments(words)
    runs = [
        Run(name, msgspec.structs.replace(options, seed=seed), policy)
        for name, options in workloads(args).items()
        for seed in range(args.seeds)
        for policy in args.policy or ALL
    ]
    with ProcessPoolExecutor(args.jobs) as processes:
        outcomes = list(processes.map(replayed, runs))
    results: dict[str, dict[str, Mean]] = {}
    for name in dict.fromkeys(run.workload for run in runs):
        results[name] = {
            policy: _mean(
                outcome
                for run, outcome in zip(runs, outcomes, strict=True)
                if (run.workload, run.policy) == (name, policy)
            )
            for policy in dict.fromkeys(run.policy for run in runs)
        }
        print(table(name, results[name]))
    print(ratios(results))
    missed = [line for name, means in results.items() for line in misses(name, means)]
    print("\n".join(missed) if missed else "every aim is reached")
    sys.exit(1 if missed else 0)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench policies")
    add = parser.add_argument
    add("--traces", type=Path, metavar="DIR", help=f"where {MOONCAKE} and {AZURE} are")
    add("--workload", action="append", help="only this one; repeatable")
    add("--policy", action="append", choices=list(ALL), help="only this; repeatable")
    add("--seeds", type=int, default=3, metavar="N", help="(default: 3)")
    add("--block-size", type=int, default=64, metavar="N", help="(default: 64)")
    add("--no-kv-events", action="store_true", help="workers publish no events")
    add("--event-delay", type=float, default=0.0, metavar="MS", help="(default: 0)")
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    return parser.parse_args(words)


def workloads(args: argparse.Namespace) -> Mapping[str, SimulateOptions]:
    """Every workload by the name the report gives it."""
    base = SimulateOptions(
        block_size=args.block_size,
        speed=Speed(prefill_rate=PREFILL_RATE),
        kv_events=not args.no_kv_events,
        event_delay_s=args.event_delay / 1000,
    )
    change = msgspec.structs.replace
    found = {name: change(base, format=f"synthetic:{name}") for name in SYNTHETIC}
    if args.traces is not None:
        mooncake = change(base, format="mooncake", trace=args.traces / MOONCAKE)
        for tokens, label in ((307_328, "307k"), (1_020_000, "1.02M")):
            found[f"mooncake {label}"] = change(
                mooncake, cache_tokens=tokens, arrival_scale=3.0
            )
        found["azure conversation"] = change(
            base, format="azure", trace=args.traces / AZURE, arrival_scale=12.0
        )
    return {n: o for n, o in found.items() if not args.workload or n in args.workload}


def replayed(run: Run) -> Outcome:
    """One replay; in a process of its own."""
    asked = workload(run.options)
    cutter = BlockCutter(run.options.block_size)
    replay = Replay(run.options, asked, run.policy, cutter, policies=ALL)
    return replay.run(hit_ceiling(asked, cutter))


def _mean(outcomes: Iterable[Outcome]) -> Mean:
    found = list(outcomes)
    return Mean(
        *(
            statistics.fmean(getattr(outcome, field) for outcome in found)
            for field in Mean.__struct_fields__
        )
    )


def table(name: str, means: Mapping[str, Mean]) -> str:
    """A workload's results as Markdown; times in seconds."""
    lines = [
        f"### {name}",
        "| policy | hit rate | TTFT mean | TTFT p90 | imbalance | success |",
        "|---|---|---|---|---|---|",
    ]
    for policy, mean in means.items():
        lines.append(
            f"| {policy} | {mean.hit_rate:.1%} | {mean.ttft_mean_s:.4f} | "
            f"{mean.ttft_p90_s:.4f} | {mean.imbalance:.2f} | {mean.success_rate:.1%} |"
        )
    return "\n".join([*lines, ""])


def ratios(results: Mapping[str, Mapping[str, Mean]]) -> str:
    """For each rule, the geometric mean over the workloads of ours over theirs."""
    lines = ["| ours over | TTFT mean | TTFT p90 |", "|---|---|---|"]
    for policy in next(iter(results.values()), {}):
        pairs = [
            (m[OURS], m[policy])
            for m in results.values()
            if OURS in m and policy != OURS
        ]
        if pairs:
            mean = _geometric(a.ttft_mean_s / b.ttft_mean_s for a, b in pairs)
            p90 = _geometric(a.ttft_p90_s / b.ttft_p90_s for a, b in pairs)
            lines.append(f"| {policy} | {mean:.3f} | {p90:.3f} |")
    return "\n".join([*lines, ""])


def _geometric(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def misses(name: str, means: Mapping[str, Mean]) -> list[str]:
    """Where the default is further behind than it may be."""
    if OURS not in means:
        return []
    ours, missed = means[OURS], []
    if ours.success_rate < 1:
        missed.append(f"{name}: {1 - ours.success_rate:.2%} failed")
    for policy in POLICIES:
        if policy == OURS or policy not in means:
            continue
        allowed = ABOVE_LEAST_LOADED if policy == LEAST_LOADED else ABOVE_BEST
        for field in ("ttft_mean_s", "ttft_p90_s"):
            mine, other = getattr(ours, field), getattr(means[policy], field)
            if mine > max(other * (1 + allowed[0]), other + allowed[1]):
                missed.append(f"{name}: {field} {mine:.4f}, {policy} {other:.4f}")
    return missed
