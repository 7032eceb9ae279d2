"""Predicted against delivered hits of one worker, from one request to the next.

Each prompt token of a request whose worker told its cached tokens has one fate
(`FATES`), so the fates add up to the prompt. What of it corrects the index is done in
kvindex; here it is summed, and it is noticed when the two disagree of late.

Not here: metrics and log lines (`account.py`).
"""

from collections.abc import Mapping

from router.outcome import Outcome
from router.request import Usage

FATES: Mapping[str, str] = {
    "found": "predicted, and found cached",
    "not_indexed": "found cached, though nothing here knew of it",
    "gone": "predicted, but computed anew",
    "elsewhere": "computed anew, though another candidate held it",
    "not_rendered": "computed anew; without token ids nobody could be asked for it",
    "new": "computed anew; no candidate was known to hold it",
}
"""What can become of a prompt token."""

PATIENCE = 8
"""So many answers in a row that tell nothing of predicted hits: it tells none."""

MEMORY = 32
"""Requests that the running comparison looks back, about."""

EVIDENCE = 8
"""Requests before anything is concluded."""

APART, TOGETHER = 0.5, 0.8
"""The smaller of two means over the larger: below, they disagree; above, no more."""

AGREES, FINDS_LESS, FINDS_MORE = "agrees", "finds_less", "finds_more"


def fates(outcome: Outcome) -> dict[str, int]:
    """What became of the prompt tokens of a request; `delivered` must be known."""
    prompt, found = outcome.prompt_tokens, outcome.delivered_hit_tokens or 0
    predicted = min(outcome.predicted_hit_tokens, prompt)
    known = max(found, predicted)
    split = dict.fromkeys(FATES, 0)
    split["found"] = min(found, predicted)
    split["not_indexed"] = max(0, found - predicted)
    if outcome.estimated:
        split["not_rendered"] = prompt - found
        return split
    best = max(known, min(outcome.best_hit_tokens, prompt))
    split["gone"] = max(0, predicted - found)
    split["elsewhere"] = best - known
    split["new"] = prompt - best
    return split


class Comparison:
    """One worker's sums, and the running means of its last requests."""

    def __init__(self) -> None:
        self.predicted = 0
        self.delivered = 0
        self.fates = dict.fromkeys(FATES, 0)
        self.uncompared: dict[str, int] = {}
        self.reports: bool | None = None
        """Whether it tells its cached tokens; None: not known yet."""
        self.agreement: str | None = None
        """One of the three words, None before there is evidence."""
        self.recent_predicted = 0.0
        self.recent_delivered = 0.0
        self._tells_zero = False
        self._untold = 0
        self._requests = 0

    def cached_tokens(self, usage: Usage, predicted: int) -> int | None:
        """The cached tokens of an answer; None where they are not known.

        SGLang, and vLLM in many releases, leave them out where they are 0: of a worker
        that tells others and has never told a 0, nothing told is a 0.
        """
        told = usage.cached_tokens
        if told is not None:
            self.reports, self._untold = True, 0
            self._tells_zero = self._tells_zero or told == 0
            return told
        if predicted > 0:
            self._untold += 1
            if self._untold >= PATIENCE:
                self.reports, self._tells_zero = False, False
        return 0 if self.reports and not self._tells_zero else None

    def skip(self, reason: str) -> None:
        """A request that cannot be compared."""
        self.uncompared[reason] = self.uncompared.get(reason, 0) + 1

    def settle(self, outcome: Outcome) -> dict[str, int]:
        """Take in a request whose delivered tokens are known; its fates."""
        predicted, delivered = (
            outcome.predicted_hit_tokens,
            outcome.delivered_hit_tokens or 0,
        )
        self.predicted += predicted
        self.delivered += delivered
        split = fates(outcome)
        for fate, tokens in split.items():
            self.fates[fate] += tokens
        if not outcome.estimated and max(predicted, delivered):
            self._run_on(predicted, delivered)
        return split

    def _run_on(self, predicted: int, delivered: int) -> None:
        self._requests += 1
        weight = 1 / min(self._requests, MEMORY)
        self.recent_predicted += weight * (predicted - self.recent_predicted)
        self.recent_delivered += weight * (delivered - self.recent_delivered)
        if self._requests < EVIDENCE:
            return
        less, more = sorted((self.recent_predicted, self.recent_delivered))
        if less >= TOGETHER * more:
            self.agreement = AGREES
        elif less < APART * more:
            short = self.recent_delivered < self.recent_predicted
            self.agreement = FINDS_LESS if short else FINDS_MORE
        elif self.agreement is None:
            self.agreement = AGREES
