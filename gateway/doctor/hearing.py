"""Events that one process alone can have: a gateway that runs is not to lose them.

TensorRT-LLM hands each event out once, and at one port only one process listens. So
without `--probe` the doctor leaves them alone, and says that it does not know.
"""

import contextlib
import errno

import msgspec
import zmq

from gateway.doctor.diagnosis import Checkup
from gateway.doctor.feed_findings import feeds
from gateway.doctor.finding import Finding
from gateway.events.sources import FETCHED, Sources
from router.worker import Worker

AT_A_GATEWAY = "GET /gateway/workers of the gateway that runs"
LEFT = Finding(
    "its KV events are not fetched: each is handed out once, and a gateway that runs "
    "would miss it",
    f"{AT_A_GATEWAY}, or where none does --probe",
    wrong=False,
)
TAKEN = Finding(
    "its KV events were fetched, each of which is handed out once: a gateway that runs "
    "has missed them, and its feed is degraded for a while",
    AT_A_GATEWAY,
    wrong=False,
)
FIRST = Finding(
    "or its KV events are fetched by a gateway that runs, before the doctor does",
    AT_A_GATEWAY,
    wrong=False,
)
UNLISTENED = Finding(
    "its KV events may come to --kv-events-bind, where only one process can listen",
    f"{AT_A_GATEWAY}, or where none does --probe",
    wrong=False,
)
UNHEARD = Finding(
    "its KV events may come to --kv-events-bind, where the doctor cannot listen",
    "what is said of that address",
    wrong=False,
)
BUSY = "stop what listens there, perhaps a gateway, and ask again; or " + AT_A_GATEWAY
NO_ADDRESS = "--kv-events-bind: an address of this machine"


class Hearing(msgspec.Struct, frozen=True):
    """What the doctor takes, and whether it can: `trouble` keeps it from listening."""

    probes: bool
    endpoint: str | None
    trouble: zmq.ZMQError | None = None

    def unheard(self, sources: Sources) -> Finding | None:
        """Why nothing can be said of a worker's events, if so."""
        if sources.elsewhere == FETCHED:
            return LEFT
        if self.endpoint is None or sources.by_rank or sources.drained:
            return None
        if self.trouble is not None:
            return UNHEARD
        return None if self.probes else UNLISTENED

    def fetched(self, worker: Worker, sources: Sources) -> tuple[Finding, ...]:
        """What is to be said of a worker whose events were fetched."""
        if not sources.drained:
            return ()
        if any(feed.last_sequence is not None for feed in feeds(worker)):
            return (TAKEN,)
        # A route that fails tells of no other who fetches.
        return (FIRST,) if any(feed.reached for feed in feeds(worker)) else ()

    def own(self) -> tuple[Checkup, ...]:
        """What kept the doctor from listening, if anything did."""
        if self.trouble is None or self.endpoint is None:
            return ()
        busy = self.trouble.errno == errno.EADDRINUSE
        text = f"cannot listen for KV events: {self.trouble.strerror}"
        finding = Finding(text, BUSY if busy else NO_ADDRESS, wrong=not busy)
        return (Checkup(url=self.endpoint, state="not heard", findings=(finding,)),)


def hearing(endpoint: str | None, *, probes: bool) -> Hearing:
    """Find out whether the doctor can listen where it is to."""
    if endpoint is None or not probes:
        return Hearing(probes, endpoint)
    with zmq.Context() as context, contextlib.closing(context.socket(zmq.SUB)) as own:
        own.set(zmq.LINGER, 0)
        own.set(zmq.IPV6, 1)
        try:
            own.bind(endpoint)
        except zmq.ZMQError as error:
            return Hearing(probes, endpoint, error)
    return Hearing(probes, endpoint)
