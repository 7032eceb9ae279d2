"""What a worker is shown: the client's own Authorization, or the worker's key."""

import msgspec

from gateway.access.clients import KEY_HEADERS
from gateway.errors import ConfigError
from gateway.request.headers import RawHeaders
from gateway.settings.config import Config
from router.worker import Worker


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a client's headers with keys are for the workers, and the key that is."""

    replace: bool = False
    key: str | None = None
    """That of all workers without one of their own."""

    @classmethod
    def of(cls, config: Config) -> "Credentials":
        """As configured; ConfigError where keys of ours would go to workers."""
        ours = config.api_keys_file is not None
        if ours and config.worker_auth == "pass":
            raise ConfigError(
                "--worker-auth pass would hand the workers the clients' keys of "
                "--api-keys-file"
            )
        replace = ours or config.worker_auth == "replace"
        return cls(replace=replace, key=config.worker_api_key)

    @property
    def dropped(self) -> frozenset[bytes]:
        """Headers of clients that do not go along."""
        return KEY_HEADERS if self.replace else frozenset()

    def shown(self, worker: Worker) -> RawHeaders:
        """What goes along instead."""
        key = worker.api_key or self.key
        if not self.replace or key is None:
            return ()
        return [(b"Authorization", b"Bearer " + key.encode("ascii"))]


OWN_CREDENTIALS = Credentials()
"""Clients bring their own."""
