"""Sessions: a request that names one has a home, the same for every gateway.

The home is drawn by rendezvous hashing: each place gets a number from the session's
name and its own, the largest wins. Where a worker comes or goes, only its own sessions
move. Nothing is remembered.
"""

from collections.abc import Sequence

import xxhash

from router.candidate import Candidate


def homes(session: str, candidates: Sequence[Candidate]) -> list[int]:
    """Indexes of the candidates: the session's home, its second home, and so on."""
    name = session.encode("utf-8", "surrogatepass")

    def draw(index: int) -> int:
        candidate = candidates[index]
        place = f"{candidate.worker.url}#{candidate.rank}"
        return xxhash.xxh3_64_intdigest(place.encode(), xxhash.xxh3_64_intdigest(name))

    return sorted(range(len(candidates)), key=draw, reverse=True)
