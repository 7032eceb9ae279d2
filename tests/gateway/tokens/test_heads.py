"""Headers beside ids in place of a client's body, and beside what is made of ids."""

import json

import aiohttp
import pytest

from gateway.tokens.heads import beside_another_body
from tests.gateway.scripted import worker
from tests.gateway.tokens.breaking import BODY, HEAD, before, choice, chunk, event
from tests.gateway.tokens.rig import ask
from tests.proxy.raw import LAST_CHUNK, json_answer
from tests.running import StartGateway

OF_THE_BODY = (
    "Content-Digest", "Content-MD5", "Repr-Digest", "Digest", "Want-Content-Digest",
    "X-Hub-Signature-256", "X-Amz-Content-Sha256", "Signature", "Signature-Input",
    "Content-Language", "Content-Range", "Content-Location", "Range", "If-Match",
    "If-None-Match", "If-Modified-Since", "If-Range", "If-Unmodified-Since",
    "x_hub_signature", "IF_NONE_MATCH",
)  # fmt: skip
OTHERS = (
    "Authorization",
    "X-Session-ID",
    "traceparent",
    "X-Content",
    "Gift",
    "Arrange",
)
OF_AN_ANSWER = (b"ETag", b"Content-MD5", b"Digest", b"Last-Modified", b"Accept-Ranges")


async def test_what_is_said_of_the_clients_body_is_not_said_of_ids(
    start_gateway: StartGateway, client: aiohttp.ClientSession
) -> None:
    """A worker that checks a digest would refuse the gateway's JSON; all else goes."""
    body = json.dumps({"choices": [choice([9707], "length")]}).encode()
    async with worker(json_answer(body)) as raw:
        gateway = await before(start_gateway, raw)
        sent = dict.fromkeys((*OF_THE_BODY, *OTHERS), "a")
        told = await ask(client, gateway.url, BODY, **sent)
        assert told.status == 200, told.text
        (got,) = [one for one in raw.requests if one.startswith(b"POST")]
    head = got.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    names = [line.partition(":")[0] for line in head]
    assert {*OTHERS} <= {*names}
    assert not {name.lower() for name in OF_THE_BODY} & {name.lower() for name in names}
    assert names.count("Content-Type") == names.count("Content-Length") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_said_of_ids_is_not_said_of_an_answer(
    start_gateway: StartGateway, client: aiohttp.ClientSession, stream: bool
) -> None:
    """Nor of a stream; what else the worker tells is there."""
    extra = [name + b": a" for name in (*OF_AN_ANSWER, b"X-Other")]
    body = json.dumps({"choices": [choice([9707], "length")]}).encode()
    answer = json_answer(body, *extra)
    if stream:
        head = HEAD.replace(b"\r\n\r\n", b"\r\n" + b"\r\n".join(extra) + b"\r\n\r\n")
        answer = head + chunk([9707], "length") + event(b"[DONE]") + LAST_CHUNK
    async with worker(answer) as raw:
        gateway = await before(start_gateway, raw)
        told = await ask(client, gateway.url, BODY | {"stream": stream})
    assert told.status == 200, told.text
    assert told.headers["X-Other"] == "a"
    assert not [name for name in OF_AN_ANSWER if name.decode() in told.headers]
    kind = "text/event-stream" if stream else "application/json"
    assert told.headers.getall("Content-Type") == [kind]


def test_the_rest_is_kept_as_it_came() -> None:
    """Its order, its case and its repeats."""
    kept = [(b"X-A", b"1"), (b"x-b", b"2"), (b"X-A", b"3")]
    assert beside_another_body([*kept, (b"eTag", b"4")]) == kept
