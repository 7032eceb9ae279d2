"""When a fleet finds again what it found before one of its gateways was killed. Pure.

The same chats held with one gateway, which nobody killed, tell what there was to find.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from bench._replica_traffic import Sample, hit_rate

WINDOW_S = 5.0
SPAN_S = 10.0
"""So long at a time the rate is judged: of fewer requests it says little."""
POINTS = 2.0
LIMIT_S = 30.0


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The hit rates of the requests that were sent in a few seconds."""

    begin_s: float
    end_s: float
    """Both since the kill."""
    rates: tuple[float, ...]


def windows(
    runs: Sequence[Sequence[Sample]], kill_s: float, since_s: float = -3 * WINDOW_S
) -> Iterator[Window]:
    """The rates of several runs side by side, from `since_s` of the kill to the end."""
    end_s = min(map(_end, runs)) - kill_s
    begin = since_s
    while begin + WINDOW_S <= end_s:
        end = begin + WINDOW_S
        rates = (hit_rate(run, kill_s + begin, kill_s + end) for run in runs)
        yield Window(begin_s=begin, end_s=end, rates=tuple(rates))
        begin = end


def recovered_s(
    run: Sequence[Sample], undisturbed: Sequence[Sample], kill_s: float
) -> float | None:
    """Seconds after the kill from which on as much is found as where none was killed.

    That is: within POINTS, over the next SPAN_S and over all that comes later. None:
    never, or the traffic ends before that can be said.
    """
    end = min(_end(run), _end(undisturbed))
    since = kill_s
    while since + SPAN_S <= end:
        if all(
            hit_rate(run, since, until) + POINTS / 100
            >= hit_rate(undisturbed, since, until)
            for until in (since + SPAN_S, end)
        ):
            return since - kill_s
        since += WINDOW_S
    return None


def faults(
    run: Sequence[Sample],
    undisturbed: Sequence[Sample],
    kill_s: float,
    refused: Mapping[str, int],
) -> list[str]:
    """What is not as it must be, a line each."""
    found = [f"clients saw {count} {what}" for what, count in refused.items()]
    seconds = recovered_s(run, undisturbed, kill_s)
    if seconds is None:
        found.append("the hit rate did not recover")
    elif seconds > LIMIT_S:
        found.append(f"the hit rate took {seconds:g} s to recover")
    return found


def _end(run: Sequence[Sample]) -> float:
    return max((sample.at_s for sample in run), default=0.0)
