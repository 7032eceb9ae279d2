"""A body as a client wrote it, workers that take ids or do not, and what they got."""

from gateway.request.splice import encoded
from render import Renderer
from tests.gateway.scripted import ANSWER
from tests.proxy.raw import RawWorker, WorkerConnection
from tests.proxy.raw import json_answer as answer
from tests.running import Running

BAD = b"400 Bad Request"
REFUSED = answer(b'{"error": "Extra inputs are not permitted"}', status=BAD)
MISSING = answer(b"{}", status=b"404 Not Found")
BODY = (
    b' {"model":"m" ,\n"messages": [{"role":"user","content":"h\\u0069 }{\\"]"}],'
    b'"seed":1.50, "stop":null,"max_tokens" :4}\n'
)


def engine(name: str, *, takes_ids: bool, ok: bytes = ANSWER) -> RawWorker:
    """A worker of that engine that takes ids, or answers them 400."""
    listing = answer(b'{"data": [{"id": "m", "owned_by": "%s"}]}' % name.encode())

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if request.startswith(b"POST /v1/chat/completions"):
                refuses = b"_ids" in request and not takes_ids
                await connection.send(REFUSED if refuses else ok)
            else:
                models = request.startswith(b"GET /v1/models")
                await connection.send(listing if models else MISSING)

    return RawWorker(script)


def bodies(worker: RawWorker) -> list[bytes]:
    """The chats that a worker was sent, byte for byte."""
    parts = [request.split(b"\r\n\r\n", 1) for request in worker.requests]
    return [body for head, body in parts if head.startswith(b"POST /v1/chat")]


async def ask(gateway: Running, body: bytes = BODY) -> tuple[int, bytes]:
    """Status and body of the answer to a chat."""
    url = gateway.url + "/v1/chat/completions"
    headers = {"Content-Type": "application/json"}
    async with gateway.client.post(url, data=body, headers=headers) as response:
        return response.status, await response.read()


def with_ids(renderer: Renderer, engine: str, body: bytes = BODY) -> bytes:
    """The body as a proven worker of an engine is to get it."""
    ids = encoded(renderer.with_profile(engine).render_chat(body).token_ids)
    member = {
        "vllm": b'"kv_transfer_params":{"prompt_token_ids":%b}',
        "sglang": b'"input_ids":%b',
        "trtllm": b'"prompt_token_ids":%b',
    }[engine] % ids
    end = body.rindex(b"}")
    return body[:end] + b"," + member + body[end:]
