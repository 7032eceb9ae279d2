"""What is wrong with a worker, seen from the gateway, and what would mend it.

Looks only at what the gateway has learnt; `doctor.py` sees that it learns something.
"""

from collections.abc import Iterator, Mapping

import msgspec

from gateway.contact import GENERIC, WorkerFacts
from gateway.silence import flags
from kvindex.feed import Feed
from kvindex.standing import FeedState
from router.proof import PENDING, Blocker
from router.worker import Worker

NO_MATTER = frozenset({"no_ids"})
"""Why no ids go along, where nothing is wrong."""

REMEDIES: Mapping[str, str] = {
    PENDING: "give it more time: --wait",
    "no_fingerprint": "TRTLLM's release is too old to tell, or --proof digest-or-probe",
    "unreachable": "is its address right, and is it up?",
    "unauthorised": "--worker-api-key KEY",
    "template_differs": "--chat-template as the worker has it",
    "tokenizer_differs": "--model, --tokenizer or --revision as the worker has it",
    "model_type_differs": "--model as the worker has it",
    "own_processor": "none: it builds prompts by other means than its template",
    "incomplete": "--proof digest-or-probe",
    "library_differs": "--proof digest-or-probe",
    "no_model": "--model NAME=DIR_OR_ID",
    "probe_differs": "--chat-template, --default-chat-template-kwargs, "
    "--chat-template-content-format or --revision as the worker has it",
    "probe_failed": "--probe, which may send it a chat of one token",
    "ids_rejected": "its log says why; restart it",
}
"""What to change here, by the word that says why ids may not go along."""


class Finding(msgspec.Struct, frozen=True):
    """Something wrong, and the flag that mends it."""

    problem: str
    remedy: str


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, examined. The texts are cells of a table."""

    url: str
    engine: str
    state: str
    events: str
    block_size: str
    rendering: str
    findings: tuple[Finding, ...]


def examine(worker: Worker, facts: WorkerFacts | None) -> Checkup:
    """What is known of a worker; `facts` is what it said, if it said anything."""
    if facts is None:
        finding = Finding(worker.reason, "is its address right, and is it up?")
        return Checkup(
            url=worker.url,
            engine="?",
            state="no answer",
            events="?",
            block_size="?",
            rendering="?",
            findings=(finding,),
        )
    return Checkup(
        url=worker.url,
        engine=f"{worker.engine} {worker.version or ''}".strip(),
        state=str(worker.state),
        events=_events(worker),
        block_size=str(worker.block_size_of(worker.ranks[0])),
        rendering=_rendering(worker),
        findings=tuple(_findings(worker, facts)),
    )


def settled(worker: Worker) -> bool:
    """Whether there is nothing more to wait for."""
    proof = worker.proof
    if isinstance(proof, Blocker) and proof.reason == PENDING:
        return False
    return all(_heard(feed) for feed in _feeds(worker))


def _feeds(worker: Worker) -> list[Feed]:
    return [known.feed for _, known in sorted(worker.knowledge.items())]


def _heard(feed: Feed) -> bool:
    """Whether it has said something, or has nothing to say it by."""
    return feed.state is FeedState.ESTIMATED or feed.last_sequence is not None


def _events(worker: Worker) -> str:
    feeds = _feeds(worker)
    if not any(feed.state is not FeedState.ESTIMATED for feed in feeds):
        return "none"
    arrive = sum(feed.last_sequence is not None for feed in feeds)
    states = "/".join(sorted({str(feed.state) for feed in feeds}))
    if len(feeds) > 1:
        return f"{states}, {arrive} of {len(feeds)} ranks heard"
    return f"{states}, {'heard' if arrive else 'nothing heard'}"


def _rendering(worker: Worker) -> str:
    proof = worker.proof
    if isinstance(proof, Blocker):
        return proof.reason
    return f"proven by {proof.by}"


def _findings(worker: Worker, facts: WorkerFacts) -> Iterator[Finding]:
    if facts.trouble:
        yield Finding(facts.trouble, "--worker-api-key KEY")
    if worker.engine == GENERIC:
        text = "its engine is not known: no KV events, no ids"
        yield Finding(text, "none, or the engine's own server in its place")
    else:
        yield from _about_events(worker)
    proof = worker.proof
    if isinstance(proof, Blocker) and proof.reason not in NO_MATTER:
        text = f"its rendering is not proven: {proof.reason}"
        detail = f" ({proof.detail})" if proof.detail else ""
        yield Finding(text + detail, REMEDIES.get(proof.reason, "see its log"))


def _about_events(worker: Worker) -> Iterator[Finding]:
    for rank, known in sorted(worker.knowledge.items()):
        feed = known.feed
        where = f"rank {rank}: " if len(worker.knowledge) > 1 else ""
        if feed.state is FeedState.ESTIMATED:
            yield Finding(f"{where}no KV events: {feed.reason}", flags(worker))
        elif feed.state is not FeedState.LIVE:
            yield Finding(f"{where}{feed.state}: {feed.reason}", flags(worker))
        elif feed.last_sequence is None:
            yield Finding(
                f"{where}nothing heard yet",
                f"--probe, which sends it one small request; else: {flags(worker)}",
            )
