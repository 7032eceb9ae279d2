"""Which worker a topic of the gateway's own event socket belongs to. No I/O."""

from collections.abc import Iterable, Mapping, Sequence

from gateway.upstreams.origin import Origin

PREFIX = "kv@"
FLAG = "--kv-events-topic URL=TOPIC"
TOPIC_BYTES = 1_024
SEVERAL = "is told by several workers, and so counts for none"
NAMED = 4
"""Of the workers that share one so many are named."""


class Topics:
    """Topics as declared, those of the form `kv@HOST[:PORT]@MODEL`, and as told.

    What is declared wins, and a topic that two workers tell is neither's.
    """

    def __init__(self, declared: Mapping[str, str], urls: Iterable[str]) -> None:
        """`declared` has a worker's URL by topic; `urls` are those of all workers."""
        self._declared = dict(declared)
        self._places: dict[str, tuple[str, int]] = {}
        self._told: dict[str, frozenset[str]] = {}
        self._tellers: dict[str, list[str]] = {}
        self.know(urls)

    def know(self, urls: Iterable[str]) -> None:
        """These are the workers now."""
        self._by_address: dict[str, str] = {}
        by_host: dict[str, list[str]] = {}
        before = self._places  # it is done for each of hundreds that come at once
        self._places = {url: before.get(url) or _place(url) for url in urls}
        for url, (host, port) in self._places.items():
            self._by_address[f"{host}:{port}"] = url
            by_host.setdefault(host, []).append(url)
        for host, there in by_host.items():
            if len(there) == 1:
                self._by_address[host] = there[0]

        for url in self._told.keys() - self._places.keys():
            self.tell(url, frozenset())

    def tell(self, url: str, topics: frozenset[str]) -> bool:
        """These are the topics under which a worker told that it publishes here.

        Are they others than before?
        """
        changed = topics != self._told.get(url, frozenset())
        if changed:
            self._told[url] = topics
            self._tellers = {}
            for teller, told in self._told.items():
                for topic in told:
                    self._tellers.setdefault(topic, []).append(teller)
        if not topics:
            self._told.pop(url, None)
        return changed

    def tellers(self, topic: str) -> Sequence[str]:
        """The workers that told this topic to be theirs."""
        return self._tellers.get(topic, ())

    @property
    def declared(self) -> Mapping[str, str]:
        """Worker URLs by topic, as declared."""
        return self._declared

    def url(self, topic: str) -> str | None:
        """The URL of the worker that publishes under a topic; None: nobody's."""
        if topic in self._declared:
            return self._declared[topic]
        if topic.startswith(PREFIX):
            address, _, _ = topic.removeprefix(PREFIX).partition("@")
            if (url := self._by_address.get(address.lower())) is not None:
                return url
        tellers = self.tellers(topic)
        return tellers[0] if len(tellers) == 1 else None

    def nobodys(self, topic: str) -> str:
        """Why a topic is nobody's, and the flag that makes it somebody's."""
        tellers = self.tellers(topic)
        if not tellers:
            return f"is no worker's, see {FLAG}"
        named = ", ".join(sorted(tellers)[:NAMED]) + ", ..." * (len(tellers) > NAMED)
        apart = f"start each with a topic of its own, or see {FLAG}"
        return f"{SEVERAL}: {apart}: {named}"


def name_of(topic: bytes) -> str:
    """A topic as it is told, as far as it counts."""
    return topic[:TOPIC_BYTES].decode("utf-8", "replace")


def _place(url: str) -> tuple[str, int]:
    """The host of a worker, as topics write it, and its port."""
    origin = Origin.parse(url)
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    return host, origin.port
