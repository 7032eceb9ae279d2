"""Outcomes of policies side by side, as Markdown, and which aims were missed."""

import math
import statistics
from collections.abc import Iterable, Mapping

import msgspec

from router.policies import POLICIES
from simworker.simulate.replay import Outcome

OURS = "kv_cache_aware"
LEAST_LOADED = "least_loaded"
ABOVE_BEST = (0.05, 0.005)
ABOVE_LEAST_LOADED = (0.01, 0.001)
"""What the default may be above another: a share of it, or seconds."""


class Mean(msgspec.Struct, frozen=True):
    """Outcomes of one policy, averaged over seeds."""

    success_rate: float
    hit_rate: float
    ceiling: float
    ttft_mean_s: float
    ttft_p90_s: float
    imbalance: float


Means = Mapping[str, Mapping[str, Mean]]
"""By workload, then by policy."""


def mean(outcomes: Iterable[Outcome]) -> Mean:
    """The average of each figure."""
    found = list(outcomes)
    return Mean(
        *(
            statistics.fmean(getattr(outcome, field) for outcome in found)
            for field in Mean.__struct_fields__
        )
    )


def table(name: str, means: Mapping[str, Mean]) -> str:
    """A workload's results; times in seconds."""
    ceiling = next(iter(means.values())).ceiling
    lines = [
        f"### {name} (hit rate at best {ceiling:.1%})",
        "| policy | hit rate | TTFT mean | TTFT p90 | imbalance | success |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for policy, one in means.items():
        lines.append(
            f"| {policy} | {one.hit_rate:.1%} | {one.ttft_mean_s:.4f} | "
            f"{one.ttft_p90_s:.4f} | {one.imbalance:.2f} | {one.success_rate:.1%} |"
        )
    return "\n".join([*lines, ""])


def overview(results: Means) -> str:
    """Every policy in a row, every workload in a column: TTFT mean / p90 in ms."""
    lines = [
        "| TTFT mean / p90, ms | " + " | ".join(results) + " |",
        "|---|" + "---:|" * len(results),
    ]
    for policy in dict.fromkeys(p for means in results.values() for p in means):
        cells = [
            f"{1000 * means[policy].ttft_mean_s:.0f} / "
            f"{1000 * means[policy].ttft_p90_s:.0f}"
            for means in results.values()
        ]
        lines.append(f"| {policy} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def ratios(results: Means) -> str:
    """For each rule, the geometric mean over the workloads of ours over theirs."""
    lines = ["| ours over | TTFT mean | TTFT p90 |", "|---|---:|---:|"]
    for policy in next(iter(results.values()), {}):
        pairs = [
            (means[OURS], means[policy])
            for means in results.values()
            if OURS in means and policy != OURS
        ]
        if pairs:
            average = _geometric(a.ttft_mean_s / b.ttft_mean_s for a, b in pairs)
            p90 = _geometric(a.ttft_p90_s / b.ttft_p90_s for a, b in pairs)
            lines.append(f"| {policy} | {average:.3f} | {p90:.3f} |")
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
