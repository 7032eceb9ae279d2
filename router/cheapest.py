"""Which candidate costs least; and of those that cost about the same, who has room.

Costs are about the same where they differ by less than the request's own part of the
least, times what the dearer one has less of its KV cache in use. So between equal
shares in use only equal costs are, and room is worth a little, never a long prefix.
"""

from collections.abc import Sequence

from router.candidate import Candidate
from router.policy import by_ease

AHEAD = 2
"""Times the mean that one with room may be busy: more would crowd it."""


def cheapest(candidates: Sequence[Candidate]) -> int:
    """The index of the one; the least busy, or in its turn, of equal ones."""
    costs = [candidate.cost_s for candidate in candidates]
    least_s = min(costs)
    near = [n for n, cost_s in enumerate(costs) if cost_s == least_s]
    first = min((candidates[n] for n in near), key=lambda candidate: candidate.usage)
    if first.usage:
        worth_s = first.own_s
        near = [
            n
            for n, cost_s in enumerate(costs)
            if cost_s == least_s
            or cost_s - least_s <= worth_s * (first.usage - candidates[n].usage)
        ]
    if len(near) == 1:
        return near[0]
    if not first.hit_tokens:
        near = _with_room(near, candidates) or near
    return min(near, key=lambda n: by_ease(candidates[n]))


def _with_room(near: list[int], candidates: Sequence[Candidate]) -> list[int]:
    """Where a cold prompt pushes out nothing, unless that has far more than its share.

    Where it does, the oldest goes first: the less was sent to a cache lately, the
    longer nobody has asked for that. A cache of unknown size is not known to be full.
    """
    roomy = [n for n in near if not candidates[n].pushes_out]
    if not roomy or len(roomy) == len(near):
        return near
    limit_s = AHEAD * sum(map(_busy_s, candidates)) / len(candidates)
    return [n for n in roomy if candidates[n].busy_s <= limit_s]


def _busy_s(candidate: Candidate) -> float:
    return candidate.busy_s
