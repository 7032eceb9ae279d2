"""Who a key belongs to: the clients of the key file, kept in line with it."""

import hmac
import logging
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

from gateway.access.api_keys import ApiKey, hash_of, read_keys
from gateway.access.limits import Limits
from gateway.files import State, follow

log = logging.getLogger(__name__)

MOST_LABELS = 100
OTHER = "other"


class Client:
    """Whoever has one of the keys. `label` is its name in metrics."""

    def __init__(self, name: str, label: str) -> None:
        self.name = name
        self.label = label
        self.key_hash = ""
        self.limits = Limits()


class Keyring:
    """The clients by their keys. Belongs to one event loop."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        # Look-ups are blinded: how long one takes tells nothing of any hash.
        self._blind = secrets.token_bytes(32)
        self._clients: dict[bytes, Client] = {}
        self._labels: set[str] = set()
        self.replace(keys)

    @property
    def clients(self) -> Sequence[Client]:
        """All clients, in the order of the file."""
        return tuple(self._clients.values())

    def holder(self, key: str) -> Client | None:
        """Whose key that is, if anybody's."""
        return self._clients.get(self._blinded(hash_of(key)))

    def replace(self, keys: Iterable[ApiKey]) -> None:
        """Take these records in place of all; who stays goes on as it was."""
        before = {client.name: client for client in self._clients.values()}
        clients: dict[bytes, Client] = {}
        for key in keys:
            client = before.get(key.name) or Client(key.name, self._label(key.name))
            client.key_hash = key.hash
            client.limits.requests_per_minute = key.requests_per_minute
            client.limits.max_inflight = key.max_inflight
            clients[self._blinded(key.hash)] = client
        self._clients = clients

    async def watch(self, path: Path, since: State) -> None:
        """Follow the file, until cancelled; a mistake in it changes nothing.

        `since` is its state from before the keys were read.
        """

        def take(keys: tuple[ApiKey, ...]) -> None:
            self.replace(keys)
            log.info("%s: %d keys", path, len(keys))

        await follow((path,), lambda: read_keys(path), take, since=since)

    def _label(self, name: str) -> str:
        """Metrics have a series for each of the first names there ever were."""
        if len(self._labels) < MOST_LABELS:
            self._labels.add(name)
        return name if name in self._labels else OTHER

    def _blinded(self, hash_text: str) -> bytes:
        return hmac.digest(self._blind, hash_text.encode(), "sha256")
