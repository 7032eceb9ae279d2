"""What is wrong with where workers come from: a source that fails, or names nobody."""

from collections.abc import Iterable, Iterator, Mapping

from gateway.discovery.api_server import REFUSED, UNREACHABLE
from gateway.discovery.dns import EMPTY
from gateway.discovery.standing import SourceStanding
from gateway.doctor.diagnosis import Checkup
from gateway.doctor.finding import Finding

REMEDIES = {
    REFUSED: "a Role that lets its service account get, list and watch EndpointSlices",
    UNREACHABLE: "--k8s-api, and a network policy that lets the gateway through",
    EMPTY: "--workers-dns: is the name right, and does it have addresses?",
}
LOG = "what the log says of it"
NOBODY = "--workers-k8s or --workers-dns: does it have endpoints that are ready?"


def examine_sources(
    standings: Iterable[SourceStanding], counts: Mapping[str, int]
) -> Iterator[Checkup]:
    """A line for each source that fails, or names nobody."""
    for standing in standings:
        if standing.trouble is not None:
            problem, reason = str(standing.trouble), standing.trouble.reason
            finding = Finding(problem, REMEDIES.get(reason, LOG))
            yield Checkup(url=standing.name, state="fails", findings=(finding,))
        elif not counts.get(standing.name):
            finding = Finding("it names no worker", NOBODY)
            yield Checkup(url=standing.name, state="empty", findings=(finding,))
