"""Forms: the model they name is found, and every byte of them goes on."""

import itertools
from collections.abc import AsyncIterator, Sequence

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Overloaded
from gateway.request import form
from gateway.request.form import HELD_BYTES, MOST_PARTS, ModelField, model_of

TYPE = 'multipart/form-data; boundary="-=-=-"'
FILE = b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\n'
NAME = b'Content-Disposition: form-data; name="model"\r\n'


def body(*parts: tuple[bytes, bytes]) -> bytes:
    """A form of parts: their heads and contents."""
    lines = [b"---=-=-\r\n" + head + b"\r\n" + data + b"\r\n" for head, data in parts]
    return b"".join(lines) + b"---=-=---\r\n"


def model(data: bytes, content_type: str = TYPE) -> str | None:
    """What is found in all of it."""
    field = ModelField(content_type)
    field.feed(data)
    return field.model


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    """They come one by one."""
    for piece in given:
        yield piece


async def read(*given: bytes) -> tuple[str | None, list[bytes], list[int]]:
    """The model, all that goes on, and the sizes of what was held."""
    held: list[int] = []
    found, going = await model_of(TYPE, pieces(*given), held.append)
    return found, [piece async for piece in going], held


@pytest.mark.parametrize(
    "parts",
    [
        [(NAME, b"m-1")],
        [(NAME, b"m-1"), (FILE, b"x")],
        [(FILE, b"x" * 3_000), (NAME, b"m-1")],
        [(FILE, b'\r\n--\r\n-=-=-\r\n\r\nname="model"\r\n'), (NAME, b"m-1")],
        [(b"content-disposition:form-data;name=model\r\n", b"m-1")],
        [(b"Content-Type: text/plain\r\n" + NAME, b"m-1")],
        [(NAME.replace(b"model", b"mode"), b"x"), (NAME, b"m-1")],
        [(NAME.replace(b"\r", b"; filename=x\r"), b"of a file"), (NAME, b"m-1")],
        [(b"Content-Disposition\r\n", b"x"), (b"", b""), (NAME, b"m-1")],
    ],
)
def test_the_model_is_found(parts: Sequence[tuple[bytes, bytes]]) -> None:
    """Wherever it is, whatever is before it, in however many pieces it comes."""
    data = body(*parts)
    assert model(data) == "m-1"
    field = ModelField(TYPE)
    assert any(field.feed(data[at : at + 1]) for at in range(len(data)))
    assert field.model == "m-1"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no form at all",
        body((FILE, b"x")),
        body((NAME, b"")),
        body((NAME, b"m" * 5_000)),
        body((NAME + b"X: " + b"y" * 17_000, b"m-1")),
        body((b"Content-Disposition: form-data; name*=UTF-8''model\r\n", b"\xff")),
        body((b"Content-Disposition: x; name*%b=model\r\n" % (b"9" * 5_000), b"m-1")),
        body(*[(FILE, b"x")] * MOST_PARTS, (NAME, b"m-1")),
        body((FILE, b"x"))[:-20] + body((NAME, b"too late"))[:10],
    ],
)
def test_what_names_no_model(data: bytes) -> None:
    """It is routed like any other request of an unknown model."""
    assert model(data) is None


@pytest.mark.parametrize("boundary", ["", f"; boundary*{'9' * 5_000}=-=-=-"])
def test_no_boundary(boundary: str) -> None:
    """Nothing can be read of it."""
    assert model(body((NAME, b"m-1")), "multipart/form-data" + boundary) is None


@given(st.binary(max_size=200), st.lists(st.integers(0, 400), max_size=6))
async def test_all_of_it_goes_on(content: bytes, cuts: list[int]) -> None:
    """As it came, whatever is in it."""
    data = body((FILE, content), (NAME, b"m-1"), (FILE, content))
    at = [0, *sorted(cuts), len(data)]
    given = [data[a:b] for a, b in itertools.pairwise(at)]
    _, going, _ = await read(*given)
    assert b"".join(going) == data
    assert going == given


async def test_it_is_held_until_the_model_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And no longer than that; nor more than so much of it."""
    data = body((NAME, b"m-1"))
    found, going, held = await read(data, b"x", b"y")
    assert (found, going, held) == ("m-1", [data, b"x", b"y"], [len(data)])
    monkeypatch.setattr(form, "HELD_BYTES", 10)
    late = [body((FILE, b""))[:-10], b"x" * 11, body((NAME, b"m-1")), b"z"]
    found, going, held = await read(*late)
    assert (found, going, len(held)) == (None, late, 1)
    assert HELD_BYTES > 25_000_000


async def test_no_room_to_hold_it() -> None:
    """The client is told so."""

    def full(size: int) -> None:
        raise Overloaded("full")

    with pytest.raises(Overloaded):
        await model_of(TYPE, pieces(b"x"), full)


async def test_what_a_client_library_sends() -> None:
    """The form that aiohttp makes."""
    data = aiohttp.FormData()
    data.add_field("file", b"RIFF\r\n--", filename="a.wav")
    data.add_field("model", "whisper")
    writer = data()
    content = await writer.as_bytes()
    field = ModelField(writer.headers["Content-Type"])
    assert field.feed(content)
    assert field.model == "whisper"
