"""What is wrong with a worker, seen from the gateway, and what would mend it.

Looks only at what the gateway has learnt; `doctor.py` sees that it learns something.
"""

from collections.abc import Iterator

import msgspec

from gateway.admin import load_page
from gateway.admin.load_page import OWN_LEDGER
from gateway.doctor import remedies
from gateway.doctor.feed_findings import about_feeds, came_from, feeds
from gateway.doctor.finding import Finding
from gateway.doctor.trial import Trial
from gateway.events.sources import Sources
from gateway.workers.contact import ENGINES, GENERIC, WorkerFacts
from gateway.workers.engines.facts import NO_SIZE
from kvindex.standing import FeedState
from router.proof import ONLY_IDS, Blocker
from router.worker import Worker

NO_MATTER = frozenset({"no_ids", ONLY_IDS.reason})
"""Why no ids go along, where nothing is wrong."""
NOWHERE = Sources(ranks=(0,), by_rank={})
UNKNOWN = "?"


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, examined. The texts are cells of a table."""

    url: str
    state: str
    engine: str = UNKNOWN
    source: str = UNKNOWN
    events: str = UNKNOWN
    block_size: str = UNKNOWN
    cached_tokens: str = UNKNOWN
    load: str = UNKNOWN
    rendering: str = UNKNOWN
    findings: tuple[Finding, ...] = ()


def examine(
    worker: Worker,
    facts: WorkerFacts | None,
    trial: Trial | None = None,
    unheard: Finding | None = None,
    sources: Sources = NOWHERE,
    *,
    keyed: bool = False,
) -> Checkup:
    """What is known of a worker.

    `facts` is what it said, if it said anything; `trial` what came of chats that were
    sent to it, if any were; `unheard` why nobody listened to its events, if so;
    `sources` where these come from; `keyed`: it was asked with a key.
    """
    if facts is None:
        finding = Finding(worker.reason, remedies.for_contact(worker.reason))
        found = Checkup(url=worker.url, state="no answer", findings=(finding,))
    else:
        found = _known(worker, facts, trial, unheard, sources)
    if not keyed:
        return found
    findings = tuple(map(_refuses_key, found.findings))
    return msgspec.structs.replace(found, findings=findings)


def _refuses_key(finding: Finding) -> Finding:
    """It wants a key, and was given one."""
    if finding.remedy != remedies.WANTS_KEY:
        return finding
    return msgspec.structs.replace(finding, remedy=remedies.REFUSES_KEY)


def _known(
    worker: Worker,
    facts: WorkerFacts,
    trial: Trial | None,
    unheard: Finding | None,
    sources: Sources,
) -> Checkup:
    return Checkup(
        url=worker.url,
        state=str(worker.state),
        engine=f"{worker.engine} {worker.version or ''}".strip(),
        source=came_from(worker, sources),
        events=_events(worker) if unheard is None else UNKNOWN,
        block_size=_block_size(worker, facts),
        cached_tokens=_cached_tokens(trial),
        load=load_page.source(worker),
        rendering=_rendering(worker),
        findings=tuple(_findings(worker, facts, trial, unheard, sources)),
    )


def tells_load(worker: Worker) -> bool:
    """Whether it has told its load, or cannot be expected to."""
    return worker.engine not in ENGINES or load_page.source(worker) != OWN_LEDGER


def _events(worker: Worker) -> str:
    every = feeds(worker)
    if not any(feed.state is not FeedState.ESTIMATED for feed in every):
        return "none"
    arrive = sum(feed.last_sequence is not None for feed in every)
    states = "/".join(sorted({str(feed.state) for feed in every}))
    if len(every) > 1:
        return f"{states}, {arrive} of {len(every)} ranks heard"
    return f"{states}, {'heard' if arrive else 'nothing heard'}"


def _block_size(worker: Worker, facts: WorkerFacts) -> str:
    sizes = sorted({worker.block_size_of(rank) for rank in worker.ranks})
    shown = "/".join(map(str, sizes))
    sourceless = all(feed.state is FeedState.ESTIMATED for feed in feeds(worker))
    return f"{shown} (assumed)" if facts.block_size is None and sourceless else shown


def _cached_tokens(trial: Trial | None) -> str:
    if trial is None or trial.problem is not None:
        return UNKNOWN
    return "not told" if trial.cached_tokens is None else "told"


def _rendering(worker: Worker) -> str:
    proof = worker.proof
    if isinstance(proof, Blocker):
        return proof.reason
    return f"proven by {proof.by}"


def _findings(
    worker: Worker,
    facts: WorkerFacts,
    trial: Trial | None,
    unheard: Finding | None,
    sources: Sources,
) -> Iterator[Finding]:
    if facts.trouble:
        yield _trouble(worker, facts.trouble)
    if worker.engine == GENERIC:
        text = "its engine is not known: no KV events, no ids"
        yield Finding(text, "none, or the engine's own server in its place")
    else:
        if unheard is not None:
            yield unheard
        else:
            yield from about_feeds(worker, sources, trouble=facts.trouble, trial=trial)
        if not tells_load(worker):
            yield _untold_load(worker, facts.trouble or "")
    if trial is not None:
        yield from _about_trial(worker, trial)
    proof = worker.proof
    if isinstance(proof, Blocker) and proof.reason not in NO_MATTER:
        text = f"its rendering is not proven: {proof.reason}"
        detail = f" ({proof.detail})" if proof.detail else ""
        yield Finding(text + detail, remedies.for_rendering(worker, proof.reason))


def _trouble(worker: Worker, trouble: str) -> Finding:
    """What kept it from telling more."""
    if remedies.wants_key(trouble):
        return Finding(trouble, remedies.WANTS_KEY)
    if NO_SIZE in trouble:
        told = any(feed.block_size for feed in feeds(worker))
        return Finding(trouble, "its events tell it: --probe", not told)
    return Finding(trouble, remedies.ROUTE)


def _untold_load(worker: Worker, trouble: str) -> Finding:
    text = "it does not tell its load: what others send it is not seen"
    remedy = ENGINES[worker.engine or ""].TELL_LOAD
    if remedies.wants_key(trouble):
        remedy = remedies.WANTS_KEY
    return Finding(text, remedy, wrong=False)


def _about_trial(worker: Worker, trial: Trial) -> Iterator[Finding]:
    if trial.problem is not None:
        yield Finding(trial.problem, remedies.for_trial(trial.problem))
    elif trial.cached_tokens is None:
        text = "it tells no cached tokens, so predictions go unchecked"
        yield Finding(text, remedies.for_cached_tokens(worker) or "none")
    elif trial.cached_tokens == 0 and len(worker.ranks) > 1 and not worker.pinned:
        text = "a chat sent twice found nothing cached: perhaps at another of its ranks"
        yield Finding(text, "ask again: it may come to the same rank", wrong=False)
    elif trial.cached_tokens == 0:
        text = "a chat sent twice found nothing cached"
        yield Finding(text, remedies.for_caching(worker))
