"""The EndpointSlices of one service as a list and a watch tell of them. No I/O."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gateway.discovery.endpoint_slices import Malformed, Slice, present, read_slice
from gateway.discovery.roster import Present
from gateway.discovery.standing import SourceFailed

MALFORMED = "malformed"
"""Why a source may fail: what came is not of the API, or a part of it is not."""
STATUS = "status"
GONE = 410


class Expired(Exception):
    """The version that was asked from is too old: all has to be listed again."""


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: dict[str, Any]


class Page(msgspec.Struct):
    """One page of a list."""

    metadata: dict[str, Any]
    items: list[Any] | None = None


class Slices:
    """The slices by name, and the version that they are of."""

    def __init__(self, port: str | int | None) -> None:
        self._port = port
        self._slices: dict[str, Slice] = {}
        self.version = ""

    @property
    def present(self) -> Mapping[str, Present]:
        """Who is there, by URL."""
        return present(self._slices.values())

    def replace(self, items: Iterable[object], version: str) -> list[str]:
        """All of them, listed anew; what is odd about them, a line each."""
        before, self._slices = self._slices, {}
        odd = []
        for item in items:
            odd += self._put(item, before)
        self.version = version
        return odd

    def apply(self, event: Event) -> list[str]:
        """What a watch tells next; what is odd about it. Raises Expired, SourceFailed.

        A slice that cannot be read stays as it was.
        """
        if event.type == "ERROR":
            _raise(event.object)
        odd: list[str] = []
        if event.type in ("ADDED", "MODIFIED"):
            odd = self._put(event.object, self._slices)
        elif event.type == "DELETED":
            self._slices.pop(_metadata(event.object, "name"), None)
        self.version = _metadata(event.object, "resourceVersion") or self.version
        return odd

    def _put(self, item: object, before: Mapping[str, Slice]) -> list[str]:
        try:
            read = read_slice(item, self._port)
        except Malformed as error:
            name = _metadata(item, "name")
            if name in before:
                self._slices[name] = before[name]
            return [f"EndpointSlice {name[:100]!r} cannot be read: {error}"]
        self._slices[read.name] = read
        if read.no_port:
            return [f"EndpointSlice {read.name} has no port {self._port or 'of TCP'}"]
        if read.malformed:
            count = f"{read.malformed} endpoints"
            return [f"{count} of EndpointSlice {read.name} cannot be read"]
        return []


def _raise(status: Mapping[str, Any]) -> None:
    """What an error within a watch means."""
    if status.get("code") == GONE or status.get("reason") in ("Expired", "Gone"):
        raise Expired
    text = str(status.get("message") or status.get("reason") or "no reason")
    raise SourceFailed(STATUS, f"the watch ended: {text[:200]}")


def _metadata(item: object, field: str) -> str:
    """A text of an object's metadata; empty where there is none."""
    metadata = item.get("metadata") if isinstance(item, Mapping) else None
    value = metadata.get(field) if isinstance(metadata, Mapping) else None
    return value if isinstance(value, str) else ""
