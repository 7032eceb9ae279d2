"""How the gateway shows a Kubernetes API server who it is, and knows it: token and CA.

Both are files of a service account, which change while the gateway runs: the token
every hour or so.
"""

import ssl
from pathlib import Path

import msgspec

from gateway.discovery.standing import SourceFailed
from gateway.settings.values import secret

CREDENTIALS = "credentials"
"""Why a source may fail: the files are not what they should be."""


class Credentials(msgspec.Struct, frozen=True):
    """What one request is sent with."""

    token: str | None
    context: ssl.SSLContext


class ServiceAccount:
    """Reads the files of a service account, each time anew. It blocks."""

    def __init__(self, directory: Path) -> None:
        self._token = directory / "token"
        self._authority = directory / "ca.crt"
        self._context: ssl.SSLContext | None = None
        self._read: bytes | None = None

    def read(self) -> Credentials:
        """The files of now; SourceFailed. Either may be missing."""
        try:
            return Credentials(self._read_token(), self._read_authority())
        except (OSError, ValueError) as error:  # SSLError is an OSError
            text = f"the token or ca.crt cannot be used: {error}"
            raise SourceFailed(CREDENTIALS, text) from None

    def _read_token(self) -> str | None:
        try:
            return secret(self._token.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None

    def _read_authority(self) -> ssl.SSLContext:
        try:
            text = self._authority.read_bytes()
        except FileNotFoundError:
            text = b""
        if self._context is None or text != self._read:
            trusted = text.decode("ascii") or None
            self._context = ssl.create_default_context(cadata=trusted)
            self._read = text
        return self._context
