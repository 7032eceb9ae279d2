"""Which candidate costs least; and of those that cost about the same, the least busy.

Costs are about the same where they differ by less than the request's own part of the
least, times what the dearer one has less of its KV cache in use. So between equal
shares in use only equal costs are, and room is worth a little, never a long prefix.
"""

from collections.abc import Sequence

from router.candidate import Candidate
from router.policy import by_ease


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
    return min(near, key=lambda n: by_ease(candidates[n]))
