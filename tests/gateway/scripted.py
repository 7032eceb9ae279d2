"""Workers with scripted answers, and what is asked about a gateway before them."""

from collections.abc import Callable
from typing import Any

from router.worker import WorkerState
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer
from tests.running import Running

LISTING = json_answer(b'{"data": [{"id": "m", "owned_by": "vllm"}]}')
ANSWER = json_answer(b'{"usage": {"prompt_tokens": 9, "completion_tokens": 1}}')
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def worker(*answers: bytes | Callable[[WorkerConnection], None]) -> RawWorker:
    """A worker that answers inference with each of `answers` in turn, the last again.

    A function is called with the connection instead; then the connection ends.
    """
    turn = iter(answers)
    last: list[Any] = []

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if not request.startswith(b"POST"):
                found = request.startswith(b"GET /v1/models")
                missing = json_answer(b"{}", status=b"404 Not Found")
                await connection.send(LISTING if found else missing)
                continue
            last[:] = [next(turn, *last)]
            if callable(last[0]):
                last[0](connection)
                return
            await connection.send(last[0])

    return RawWorker(script)


def posts(worker: RawWorker) -> int:
    """The inference requests that a worker saw."""
    return sum(request.startswith(b"POST") for request in worker.requests)


async def ask(gateway: Running, **headers: str) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of the answer to a chat."""
    url = gateway.url + "/v1/chat/completions"
    async with gateway.client.post(url, json=CHAT, headers=headers) as response:
        return response.status, dict(response.headers), await response.json()


def state(gateway: Running, of: RawWorker | str) -> WorkerState:
    """The state of a worker."""
    known = gateway.gateway.pool.get(of if isinstance(of, str) else of.url)
    assert known is not None
    return known.state


async def idle(gateway: Running) -> None:
    """Nothing is in flight."""
    assert await gateway.metric("inflight_requests") == 0
    assert await gateway.metric("inflight_uncached_tokens") == 0


def refusal(status: bytes, *headers: bytes) -> bytes:
    """A worker's refusal."""
    return json_answer(b'{"error": {"message": "later"}}', *headers, status=status)
