"""Where a worker's HTTP server is: scheme, host, port, and a path before its own."""

from urllib.parse import urlsplit

import msgspec


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
        if not parts.hostname or "@" in parts.netloc:
            raise ValueError("a worker's URL names a host, and no user")
        if parts.query or parts.fragment or not url.isascii() or not url.isprintable():
            raise ValueError("a worker's URL is plain: no query, no odd characters")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        path = parts.path.rstrip("/").encode()
        return cls(scheme=parts.scheme, host=parts.hostname, port=port, path=path)

    @property
    def authority(self) -> bytes:
        """The value of ``Host``: the port is left out where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.port == (443 if self.scheme == "https" else 80):
            return host.encode()
        return f"{host}:{self.port}".encode()

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority.decode()}{self.path.decode()}"
