"""What was changed of the workers by hand, kept for processes that are started anew.

A process reads the configuration and knows nothing of what operators did since.
"""

import asyncio

import msgspec


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One request to `/gateway/workers`, as it was sent to every process."""

    method: str
    url: str
    """Of the worker."""
    target: str
    body: bytes


class Changes:
    """The last changes of each worker; `lock` is held while processes are told."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._of_worker: dict[str, list[Change]] = {}

    def note(self, change: Change) -> None:
        """It was made."""
        if change.method == "PATCH":
            before = [
                one for one in self._of_worker.get(change.url, [])
                if one.method != "PATCH"
            ]  # fmt: skip
            self._of_worker[change.url] = [*before, change]
        elif change.method == "POST":
            # The configuration may name it, too, with other words.
            out = Change(
                method="DELETE",
                url=change.url,
                target=change.target.partition("?")[0],
                body=msgspec.json.encode({"url": change.url}),
            )
            self._of_worker[change.url] = [out, change]
        else:
            self._of_worker[change.url] = [change]

    @property
    def all(self) -> list[Change]:
        """Those that make of the configured workers what they are now, in order."""
        return [change for changes in self._of_worker.values() for change in changes]
