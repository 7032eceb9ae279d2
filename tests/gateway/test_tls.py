"""Contexts made of files: mistakes in them, and files that change under connections."""

import asyncio
import logging
import os
import ssl
from pathlib import Path
from typing import Any

import pytest

from gateway.background import running
from gateway.errors import ConfigError
from gateway.settings.config import Config
from gateway.tls import RenewedContext, Tls, for_workers
from tests.proxy.certificates import Authority
from tests.running import until

HOST = "127.0.0.1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Who signs."""
    return Authority(tmp_path, "ours")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at files often enough for a test."""
    monkeypatch.setattr("gateway.files.LOOK_S", 0.02)


def serial(port_tls: asyncio.StreamWriter) -> str:
    """The serial number of the certificate that a connection showed."""
    certificate = port_tls.get_extra_info("peercert")
    assert certificate is not None
    number: str = certificate["serialNumber"]
    return number


def serving(authority: Authority, *, client_ca: Path | None = None) -> RenewedContext:
    """What clients are spoken with, by files of this authority."""
    cert, key = authority.issue("server", HOST)
    context = Tls.of(
        Config(tls_cert=cert, tls_key=key, tls_client_ca=client_ca)
    ).clients
    assert context is not None
    return context


class Echo:
    """A server that says what it hears."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._echo, HOST, 0, ssl=self._tls)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _echo(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()


async def test_a_certificate_that_is_renewed(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """New connections are shown the new one; those that are open go on. Said once."""
    caplog.set_level(logging.INFO, "gateway.tls")
    cert, key = authority.issue("server", HOST)
    tls = Tls.of(Config(tls_cert=cert, tls_key=key))
    assert tls.clients is not None
    watch = asyncio.create_task(tls.watch())
    async with Echo(tls.clients) as port:
        reader, writer = await asyncio.open_connection(
            HOST, port, ssl=authority.client()
        )
        first = serial(writer)
        await asyncio.sleep(0.05)
        authority.issue("server", HOST)
        async with asyncio.timeout(5):
            while True:
                _, other = await asyncio.open_connection(
                    HOST, port, ssl=authority.client()
                )
                latest = serial(other)
                other.close()
                if latest != first:
                    break
                await asyncio.sleep(0.02)
        writer.write(b"still here\n")
        assert await asyncio.wait_for(reader.readline(), 5) == b"still here\n"
        writer.close()
    assert caplog.text.count("new connections are by the new") == 1
    watch.cancel()
    await asyncio.wait({watch})


async def test_a_certificate_that_is_renewed_before_it_is_followed(
    authority: Authority,
) -> None:
    """Between its first reading and the first look: models are loaded meanwhile."""
    cert, key = authority.issue("server", HOST)
    tls = Tls.of(Config(tls_cert=cert, tls_key=key))
    assert tls.clients is not None
    first = tls.clients._newest
    authority.issue("server", HOST)
    async with running(tls.watch()):
        await until(lambda: tls.clients is not None and tls.clients._newest != first)


async def test_a_file_that_goes_as_it_is_read(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is a mistake like any other, which changes nothing."""
    context = serving(authority)
    monkeypatch.setattr("gateway.tls._check_readable", lambda flag, path: None)
    context.paths[1].unlink()
    with pytest.raises(ConfigError, match="No such file"):
        context.make()


async def test_a_key_that_does_not_fit_changes_nothing(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and the old certificate stays."""
    context = serving(authority)
    watch = asyncio.create_task(context.watch())
    async with Echo(context) as port:
        await asyncio.sleep(0.05)
        _, other_key = authority.issue("other", HOST)
        context.paths[1].write_bytes(other_key.read_bytes())
        await until(lambda: "all stays as it was" in caplog.text)
        assert "KEY_VALUES_MISMATCH" in caplog.text
        _, writer = await asyncio.open_connection(HOST, port, ssl=authority.client())
        writer.close()
    watch.cancel()
    await asyncio.wait({watch})


async def test_an_authority_that_is_taken_back(
    authority: Authority, tmp_path: Path
) -> None:
    """Clients of the old one are refused from then on, with a session, too."""
    old = Authority(tmp_path, "old")
    listed = tmp_path / "listed.pem"
    listed.write_bytes(old.file.read_bytes())
    context = serving(authority, client_ca=listed)
    known = authority.client(old.issue("client", "client.example"))
    watch = asyncio.create_task(context.watch())
    async with Echo(context) as port:
        reader, writer = await asyncio.open_connection(HOST, port, ssl=known)
        writer.write(b"hello\n")
        assert await asyncio.wait_for(reader.readline(), 5) == b"hello\n"
        assert not writer.get_extra_info("ssl_object").session.has_ticket
        writer.close()
        listed.write_bytes(Authority(tmp_path, "new").file.read_bytes())

        async def refused() -> bool:
            reader, writer = await asyncio.open_connection(HOST, port, ssl=known)
            try:
                writer.write(b"hello\n")
                return await reader.readline() == b""
            except (ssl.SSLError, ConnectionError):
                return True
            finally:
                writer.close()

        await until(refused)
    watch.cancel()
    await asyncio.wait({watch})


def test_mistakes(authority: Authority, tmp_path: Path) -> None:
    """One line each, with the option and the file."""
    cert, key = authority.issue("server", HOST)
    _, other_key = authority.issue("other", HOST)
    none, empty = tmp_path / "none.pem", tmp_path / "empty.pem"
    empty.write_text("")
    pipe = tmp_path / "pipe.pem"
    os.mkfifo(pipe)
    given: list[tuple[dict[str, Any], str]] = [
        ({"tls_key": key}, "--tls-key and --tls-client-ca need --tls-cert"),
        ({"tls_client_ca": cert}, "need --tls-cert"),
        ({"tls_cert": none}, f"--tls-cert {none}: No such file"),
        ({"tls_cert": pipe}, f"--tls-cert {pipe}: is a pipe"),
        ({"tls_cert": cert, "tls_key": none}, f"--tls-key {none}: No such file"),
        ({"tls_cert": cert}, f"--tls-cert {cert}: no certificate and private key"),
        ({"tls_cert": cert, "tls_key": other_key}, "KEY_VALUES_MISMATCH"),
        ({"tls_cert": empty, "tls_key": key}, f"--tls-cert {empty}, and its key"),
        (
            {"tls_cert": cert, "tls_key": key, "tls_client_ca": empty},
            f"--tls-client-ca {empty}: no certificates",
        ),
        ({"worker_key": key}, "--worker-key needs --worker-cert"),
        ({"worker_ca": empty}, f"--worker-ca {empty}: no certificates"),
        ({"worker_cert": cert, "worker_key": none}, f"--worker-key {none}: No such"),
    ]
    for options, said in given:
        with pytest.raises(ConfigError) as refused:
            Tls.of(Config(**options)), for_workers(Config(**options))
        assert said in str(refused.value)


def test_a_key_with_a_password(authority: Authority, tmp_path: Path) -> None:
    """Nobody is asked for it."""
    from cryptography.hazmat.primitives import serialization as pem

    cert, key = authority.issue("server", HOST)
    private = pem.load_pem_private_key(key.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        private.private_bytes(
            pem.Encoding.PEM,
            pem.PrivateFormat.PKCS8,
            pem.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match="the key is encrypted"):
        Tls.of(Config(tls_cert=cert, tls_key=locked))


def test_one_file_with_both(authority: Authority, tmp_path: Path) -> None:
    """The certificate and its key, as some tools write them."""
    cert, key = authority.issue("server", HOST)
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + cert.read_bytes())
    assert Tls.of(Config(tls_cert=both)).clients is not None
    assert Tls.of(Config()) == Tls()
