"""Workers that take ids and answer what a test says."""

import json
from typing import Any

from gateway.settings.values import declared_api
from tests.gateway.scripted import LISTING
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer
from tests.running import Running, StartGateway

TOKENS = (declared_api("tokens"),)
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def choice(ids: list[int], finish: str | None = None) -> dict[str, Any]:
    """Some ids of an answer."""
    return {"index": 0, "token_ids": ids, "finish_reason": finish}


def event(value: Any) -> bytes:
    """A chunk of a stream with one event in it."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    said = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(said), said)


def chunk(ids: list[int], finish: str | None = None) -> bytes:
    """An event with some ids."""
    return event({"request_id": "r", "choices": [choice(ids, finish)]})


def breaking(*pieces: bytes, head: bytes = HEAD) -> RawWorker:
    """A worker that sends these and closes the connection."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if request.startswith(b"POST"):
                await connection.send(head + b"".join(pieces))
                return
            found = request.startswith(b"GET /v1/models")
            missing = json_answer(b"{}", status=b"404 Not Found")
            await connection.send(LISTING if found else missing)

    return RawWorker(script)


async def before(start_gateway: StartGateway, *workers: RawWorker) -> Running:
    """A gateway before workers that are said to take ids."""
    return await start_gateway(*(w.url for w in workers), worker_api=TOKENS)
