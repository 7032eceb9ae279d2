"""Where a worker's HTTP server is: scheme, host, port, and a path before its own."""

import contextlib
import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

import msgspec

LONGEST_NAME = 253
_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The address of one worker. Made once per worker, with `Origin.parse`."""

    scheme: str
    host: str
    port: int
    path: bytes = b""

    @classmethod
    def parse(cls, url: str) -> "Origin":
        """From ``http[s]://host[:port][/path]``; ValueError says what is wrong."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("a worker's URL begins with http:// or https://")
        host = parts.hostname or ""
        if "@" in parts.netloc or not _is_host(host):
            raise ValueError("a worker's URL names a host, and no user")
        if parts.query or parts.fragment or not url.isascii() or not url.isprintable():
            raise ValueError("a worker's URL is plain: no query, no odd characters")
        port = _port(parts, default=443 if parts.scheme == "https" else 80)
        path = parts.path.rstrip("/").encode()
        return cls(scheme=parts.scheme, host=host, port=port, path=path)

    @property
    def authority(self) -> bytes:
        """The value of ``Host``: the port is left out where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.port == (443 if self.scheme == "https" else 80):
            return host.encode()
        return f"{host}:{self.port}".encode()

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority.decode()}{self.path.decode()}"


def _is_host(host: str) -> bool:
    """Whether that is an IPv6 address, or a name or IPv4 address that can be asked."""
    if ":" in host:
        with contextlib.suppress(ValueError):
            return bool(ipaddress.IPv6Address(host))
        return False
    return len(host) <= LONGEST_NAME and _NAME.fullmatch(host) is not None


def _port(parts: SplitResult, *, default: int) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("its port is no number from 1 to 65535")
    return port or default
