"""What to change where something is wrong, in words that can be typed.

What an engine's flags are is in the file named after it (`engines/`).
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from gateway.doctor.trial import UNSENT
from gateway.events.owners import STRAY
from gateway.workers.contact import ENGINES
from gateway.workers.engines.facts import KEY
from kvindex.engine_blocks import NO_TOKENS
from router.proof import PENDING
from router.worker import Worker

WANTS_KEY = f"{KEY} KEY"
REFUSES_KEY = f"{WANTS_KEY} as the worker has it: it refuses the one that is given"
CONTACT: Mapping[str, str] = {
    "no TLS": "http:// in its address, where it serves without TLS",
    "certificate": "--worker-ca FILE with what signed it, and the name that it is for",
    "answers 503": "wait until it is ready, and ask again: it is up, but not ready",
    "answers 5": "its log says why: it is up",
    "answers": "is its address right? what answers there does not serve models",
}
"""By words that say why a worker has not told what it serves."""
UP = "is its address right, and is it up?"
ROUTE = "its log says why that route fails: others answer"
NEWER = "a newer gateway; those blocks stay unknown"
OTHER_SERVICE = (
    "--kv-events URL=tcp://HOST:PORT as the worker publishes, if another service "
    "answers where its events should come from; else a newer gateway"
)
NO_BATCHES = frozenset({"frames", "batch"})
"""Why what came is undecodable as a whole."""
RENDERING: Mapping[str, str] = {
    PENDING: "give it more time: --wait",
    "no_fingerprint": "its release is too old to tell, or --proof digest-or-probe",
    "unreachable": UP,
    "unauthorised": WANTS_KEY,
    "template_differs": "--chat-template as the worker has it",
    "tokenizer_differs": "--model, --tokenizer or --revision as the worker has it",
    "model_type_differs": "--model as the worker has it",
    "own_processor": "none: it builds prompts by other means than its template",
    "incomplete": "--proof digest-or-probe",
    "library_differs": "--proof digest-or-probe",
    "not_in_fingerprint": "--proof digest-or-probe",
    "clock": "--proof digest-or-probe",
    "no_model": "--model NAME=DIR_OR_ID",
    "probe_differs": "--chat-template, --default-chat-template-kwargs, "
    "--chat-template-content-format or --revision as the worker has it",
    "probe_failed": "--probe, which may send it a chat of one token",
    "ids_rejected": "its log says why; restart it",
}
"""By the word that says why ids may not go along."""


def wants_key(problem: str) -> bool:
    """Whether a worker asks for a key, or refuses the one it was sent."""
    return KEY in problem or problem.endswith((" 401", " 403"))


def for_contact(reason: str) -> str:
    """What brings a worker to tell what it serves."""
    if wants_key(reason):
        return WANTS_KEY
    return next((text for why, text in CONTACT.items() if why in reason), UP)


def for_events(worker: Worker) -> str:
    """How a worker is started so that it sends events."""
    engine = ENGINES.get(worker.engine or "")
    text = engine.SEND_EVENTS if engine else "--kv-events URL=tcp://HOST:PORT"
    return named(worker, text)


def named(worker: Worker, text: str) -> str:
    """A remedy with the worker's own address in it."""
    host = urlsplit(worker.url).hostname or "HOST"
    host = f"[{host}]" if ":" in host else host
    return text.replace("URL=", f"{worker.url}=").replace("HOST:", f"{host}:")


def for_trial(problem: str) -> str:
    """What lets a small chat be answered."""
    if problem == UNSENT:
        return "start it with a model that it serves; or is its address right?"
    return WANTS_KEY if wants_key(problem) else "see the worker's log"


def for_events_left_out(reason: str) -> str:
    """What lets events count that do not."""
    if reason == STRAY:
        return "--kv-events-topic: does another worker publish under its topic?"
    if reason == NO_TOKENS:
        return '--kv-transfer-config with "self_describing_kv_events": true'
    return OTHER_SERVICE if reason in NO_BATCHES else NEWER


def for_cached_tokens(worker: Worker | None) -> str:
    """How a worker is started so that it tells its cached tokens; "" if unknown."""
    engine = ENGINES.get(worker.engine or "") if worker is not None else None
    return engine.TELL_CACHED if engine else ""


def for_caching(worker: Worker) -> str:
    """How a worker is started so that it keeps what it computed."""
    engine = ENGINES.get(worker.engine or "")
    return engine.CACHE if engine else "turn its prefix cache on"


def for_rendering(worker: Worker, reason: str) -> str:
    """What makes a worker and the gateway render alike, as far as it can be told."""
    text = RENDERING.get(reason, "see its log")
    name = next((n for n, found in worker.names.items() if not found.adapter), None)
    return text if name is None else text.replace("NAME=", f"{name}=")
