"""Who names which worker: a worker stays for as long as one source names it.

Sources are the command line, the workers file, the API, DNS, Kubernetes. Nothing here
touches the workers: that is the fleet's business.
"""

from collections.abc import Mapping

import msgspec

from router.worker import WorkerSpec

COMMAND_LINE = "workers"
FILE = "workers-file"
API = "api"


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as one source names it; `draining`: it is there, and about to leave."""

    spec: WorkerSpec
    api_key: str | None = None
    draining: bool = False


class Namings:
    """What each source names now. The source that came first decides what is declared.

    A worker that was dismissed, by hand, stays away until the sources that name it have
    once not named it.
    """

    def __init__(self, first: Mapping[str, Mapping[str, Named]] = {}) -> None:
        """`first` has what is named at the start: by source, then by URL."""
        self._named = {source: dict(named) for source, named in first.items()}
        self._dismissed: dict[str, set[str]] = {}

    @property
    def all(self) -> list[Named]:
        """Each worker that is named, those of the source that came last first."""
        urls = dict.fromkeys(
            url for named in reversed(self._named.values()) for url in named
        )
        return [named for url in urls if (named := self.get(url)) is not None]

    def name(self, source: str, named: Named) -> None:
        """A source names one more worker."""
        self._named.setdefault(source, {})[named.spec.url] = named

    def settle(self, source: str, wanted: Mapping[str, Named]) -> list[str]:
        """A source names these and no others; the URLs of which that changes something.

        Those it no longer names come first.
        """
        dismissed = self._dismissed.get(source, set())
        dismissed.intersection_update(wanted)
        now = {url: named for url, named in wanted.items() if url not in dismissed}
        before = self._named.get(source, {})
        self._named[source] = now
        gone = [url for url in before if url not in now]
        return gone + [url for url in now if now[url] != before.get(url)]

    def dismiss(self, url: str) -> None:
        """No source names it any more, whatever they said."""
        for source, named in self._named.items():
            if named.pop(url, None) is not None:
                self._dismissed.setdefault(source, set()).add(url)

    def forget(self, source: str, url: str) -> None:
        """A source names one worker less, until it settles again."""
        self._named[source].pop(url, None)

    def get(self, url: str) -> Named | None:
        """How a worker is named; draining only if it is so for every source."""
        named = [of[url] for of in self._named.values() if url in of]
        if not named:
            return None
        draining = all(one.draining for one in named)
        return msgspec.structs.replace(named[0], draining=draining)

    def sources(self, url: str) -> list[str]:
        """The sources that name a worker."""
        return [source for source, named in self._named.items() if url in named]

    def counts(self) -> dict[str, int]:
        """How many workers each source names."""
        return {source: len(named) for source, named in self._named.items()}
