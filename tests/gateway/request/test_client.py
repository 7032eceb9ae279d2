"""Writing an answer to a client's connection. What clients see is in tests/proxy."""

import asyncio
from unittest.mock import Mock

import pytest
from aiohttp.test_utils import make_mocked_request

from gateway.request.client import BUFFER_HIGH, SHORT, ClientWriter

LONG = [1, SHORT - 1, SHORT, 70_000]


class Transport(asyncio.Transport):
    """Keeps what is written; `waiting` and `closing` are what it says of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.waiting = 0
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.waiting


def writer_on(transport: Transport) -> ClientWriter:
    """It has written the head of an answer without a length."""
    request = make_mocked_request(
        "GET", "/", transport=transport, writer=Mock(output_size=0)
    )
    writer = ClientWriter(
        request, status=200, reason=b"OK", headers=[], request_id=b"r"
    )
    writer.start()
    transport.written = b""
    return writer


@pytest.mark.parametrize("size", LONG)
async def test_a_piece_of_any_length_is_one_chunk(size: int) -> None:
    """Its length in hexadecimal digits, itself, a line end."""
    transport = Transport()
    writer_on(transport).body(b"x" * size)
    assert transport.written == f"{size:x}\r\n{'x' * size}\r\n".encode()


@pytest.mark.parametrize(
    ("waiting", "enough"), [(0, False), (BUFFER_HIGH, False), (BUFFER_HIGH + 1, True)]
)
async def test_a_client_that_is_behind_has_enough(waiting: int, enough: bool) -> None:
    """It gets the piece all the same."""
    transport = Transport()
    writer = writer_on(transport)
    transport.waiting = waiting
    assert writer.body(b"x") is enough
    assert transport.written == b"1\r\nx\r\n"


async def test_a_client_that_left_gets_nothing() -> None:
    """It is told from one that takes all."""
    transport = Transport()
    writer = writer_on(transport)
    transport.closing = True
    assert writer.body(b"x")
    assert writer.gone
    assert transport.written == b""
