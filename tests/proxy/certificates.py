"""Certificates for tests, made on the spot: an authority, and what it signs."""

import ssl
from pathlib import Path

import trustme


class Authority:
    """A certificate authority whose files are in a directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self._ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self._directory = directory
        self.file = directory / f"{name}-ca.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """The files of a certificate for hosts, and of its key; written over."""
        issued = self._ca.issue_cert(*hosts, key_type=trustme.KeyType.ECDSA)
        cert, key = (self._directory / f"{name}.{kind}" for kind in ("pem", "key"))
        cert.write_bytes(b"".join(b.bytes() for b in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        return cert, key

    def server(self, *hosts: str) -> ssl.SSLContext:
        """What a server for hosts speaks; clients need no certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*hosts, key_type=trustme.KeyType.ECDSA).configure_cert(
            context
        )
        return context

    def client(self, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """What a client speaks that trusts this authority, with its own files."""
        context = ssl.create_default_context(cafile=self.file)
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context
