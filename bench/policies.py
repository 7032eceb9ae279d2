"""The default policy against every other, and against the rules others publish.

Each workload is replayed on a virtual clock (`kv-gateway simulate`) for several seeds:
the synthetic ones, and the traces in `--traces DIR` where they are there. Prints a
table per workload, and for each rule the geometric mean of ours over theirs. With
`--results FILE` it may be run in parts: what is in the file is not replayed again.
"""

import argparse
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from bench._policy_results import Key, Results
from bench._policy_tables import Mean, mean, misses, overview, ratios, table
from bench._published_rules import PUBLISHED
from router.policies import POLICIES
from simworker.simulate.options import SimulateOptions
from simworker.simulate.prompts import BlockCutter
from simworker.simulate.replay import Outcome, Replay, hit_ceiling, workload
from simworker.simulate.synthetic import SYNTHETIC
from simworker.simulate.worker import Speed
from simworker.simulate.workload import Asked

MOONCAKE = "mooncake_conversation_trace.jsonl"
AZURE = "azure2023_conv.csv"
ALL = {**POLICIES, **PUBLISHED}
PREFILL_RATE = 20_480.0
"""Qwen3-32B on two H100, as llm-d measured it."""


class Run(msgspec.Struct, frozen=True):
    """One replay: a workload under a policy, with one seed."""

    key: Key
    options: SimulateOptions


def run(words: Sequence[str]) -> None:
    """Replay, print, and exit with status 1 where an aim is missed."""
    args = _arguments(words)
    results = Results(args.results, again=args.again)
    events = _events(args)
    runs = [
        Run(
            Key(events, args.block_size, name, seed, policy),
            msgspec.structs.replace(options, seed=seed),
        )
        for name, options in workloads(args).items()
        for seed in range(args.seeds)
        for policy in args.policies or ALL
    ]
    left = [run for run in runs if run.key not in results]
    with ProcessPoolExecutor(args.jobs) as processes:
        for one, outcome in zip(left, processes.map(replayed, left), strict=True):
            results.add(one.key, outcome)
    means: dict[str, dict[str, Mean]] = {}
    for name in dict.fromkeys(run.key.workload for run in runs):
        keys = [run.key for run in runs if run.key.workload == name]
        means[name] = {
            policy: mean(results[key] for key in keys if key.policy == policy)
            for policy in dict.fromkeys(key.policy for key in keys)
        }
        print(table(name, means[name]))
    print(overview(means))
    print(ratios(means))
    missed = [line for name, found in means.items() for line in misses(name, found)]
    print("\n".join(missed) if missed else "every aim is reached")
    sys.exit(1 if missed else 0)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench policies")
    add = parser.add_argument
    add("--traces", type=Path, metavar="DIR", help=f"where {MOONCAKE} and {AZURE} are")
    add("--workloads", type=_names, metavar="A,B", help="only these")
    add("--policies", type=_policies, metavar="A,B", help="only these")
    add("--seeds", type=int, default=3, metavar="N", help="(default: 3)")
    add("--block-size", type=int, default=64, metavar="N", help="(default: 64)")
    add("--no-kv-events", action="store_true", help="workers publish no events")
    add("--event-delay", type=float, default=0.0, metavar="MS", help="(default: 0)")
    add("--results", type=Path, metavar="FILE", help="read and add to JSON lines")
    add(
        "--again",
        type=_policies,
        default=(),
        metavar="A,B",
        help="replay these even where --results has them",
    )
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    return parser.parse_args(words)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _policies(text: str) -> tuple[str, ...]:
    names = _names(text)
    for name in names:
        if name not in ALL:
            known = ", ".join(ALL)
            raise argparse.ArgumentTypeError(f"{name!r} is none of {known}")
    return names


def _events(args: argparse.Namespace) -> str:
    """How the gateway hears of the workers' caches, for the results."""
    if args.no_kv_events:
        return "none"
    return f"{args.event_delay:g} ms late" if args.event_delay else "at once"


def workloads(args: argparse.Namespace) -> Mapping[str, SimulateOptions]:
    """Every workload asked for, by the name the report gives it."""
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
    if not args.workloads:
        return found
    unknown = [name for name in args.workloads if name not in found]
    if unknown:
        known = ", ".join(found)
        raise SystemExit(f"no workload {', '.join(unknown)}; there are: {known}")
    return {name: found[name] for name in args.workloads}


def replayed(run: Run) -> Outcome:
    """One replay; in a process of its own."""
    asked, cutter, best = _prepared(run.options)
    replay = Replay(run.options, asked, run.key.policy, cutter, policies=ALL)
    return replay.run(best)


@functools.lru_cache(maxsize=1)
def _prepared(options: SimulateOptions) -> tuple[list[Asked], BlockCutter, float]:
    """What all policies replay with the same options."""
    asked, cutter = workload(options), BlockCutter(options.block_size)
    return asked, cutter, hit_ceiling(asked, cutter)
