"""What to change where something is wrong, in words that can be typed.

What an engine's flags are is in the file named after it (`engines/`).
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from gateway.events.owners import STRAY
from gateway.workers.contact import ENGINES
from kvindex.engine_blocks import NO_TOKENS
from router.proof import PENDING
from router.worker import Worker

NEWER = "a newer gateway; those blocks stay unknown"
RENDERING: Mapping[str, str] = {
    PENDING: "give it more time: --wait",
    "no_fingerprint": "its release is too old to tell, or --proof digest-or-probe",
    "unreachable": "is its address right, and is it up?",
    "unauthorised": "--worker-api-key KEY",
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


def for_events_left_out(reason: str) -> str:
    """What lets events count that do not."""
    if reason == STRAY:
        return "--kv-events-topic: does another worker publish under its topic?"
    if reason == NO_TOKENS:
        return '--kv-transfer-config with "self_describing_kv_events": true'
    return NEWER


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
