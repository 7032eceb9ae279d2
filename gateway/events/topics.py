"""Which worker a topic of the gateway's own event socket belongs to. No I/O."""

from collections.abc import Iterable, Mapping

from gateway.upstreams.origin import Origin

PREFIX = "kv@"


class Topics:
    """Topics as declared, and those of the form `kv@HOST[:PORT]@MODEL`."""

    def __init__(self, declared: Mapping[str, str], urls: Iterable[str]) -> None:
        """`declared` has a worker's URL by topic; `urls` are those of all workers."""
        self._declared = dict(declared)
        self.know(urls)

    def know(self, urls: Iterable[str]) -> None:
        """These are the workers now."""
        self._by_address: dict[str, str] = {}
        by_host: dict[str, list[str]] = {}
        for url in urls:
            origin = Origin.parse(url)
            host = f"[{origin.host}]" if ":" in origin.host else origin.host
            self._by_address[f"{host}:{origin.port}"] = url
            by_host.setdefault(host, []).append(url)
        for host, there in by_host.items():
            if len(there) == 1:
                self._by_address[host] = there[0]

    @property
    def declared(self) -> Mapping[str, str]:
        """Worker URLs by topic, as declared."""
        return self._declared

    def url(self, topic: str) -> str | None:
        """The URL of the worker that publishes under a topic; None: nobody's."""
        if topic in self._declared:
            return self._declared[topic]
        if not topic.startswith(PREFIX):
            return None
        address, _, _ = topic.removeprefix(PREFIX).partition("@")
        return self._by_address.get(address.lower())
