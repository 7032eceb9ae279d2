"""Workers that keep the responses they made, and what makes one."""

import json
from typing import Any

from aiohttp import web

from tests.running import Running


class Maker:
    """A worker that keeps what it answered, and knows nothing else."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.made: set[str] = set()
        self.refusal: int | None = None
        self.asked: list[str] = []
        self.shown: list[str | None] = []
        """The Authorization of each."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """As an engine's `/v1/responses`, streamed if asked to."""
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": "m"}]})
        if not request.path.startswith("/v1/responses"):
            return web.json_response({}, status=404)
        self.asked.append(f"{request.method} {request.path}")
        self.shown.append(request.headers.get("Authorization"))
        if self.refusal is not None:
            refused = {"error": {"message": f"{self.name} is busy"}}
            return web.json_response(refused, status=self.refusal)
        if request.path != "/v1/responses":
            known = request.path.split("/")[3] in self.made
            return web.json_response({"by": self.name}, status=200 if known else 404)
        body = await request.json()
        previous = body.get("previous_response_id")
        if previous is not None and previous not in self.made:
            return web.json_response({}, status=404)
        return self._new(streamed=body.get("stream", False))

    def _new(self, *, streamed: bool) -> web.Response:
        made = f"resp_{self.name}_{len(self.made)}"
        self.made.add(made)
        response = {"id": made, "object": "response", "by": self.name}
        if not streamed:
            return web.json_response(response)
        event = json.dumps({"type": "response.created", "response": response})
        return web.Response(
            text=f"event: response.created\ndata: {event}\n\n",
            content_type="text/event-stream",
        )


async def make(gateway: Running, **fields: Any) -> str:
    """A new response's id."""
    body = {"model": "m", "input": "hello"} | fields
    async with gateway.client.post(gateway.url + "/v1/responses", json=body) as answer:
        assert answer.status == 200
        text = await answer.text()
    response = json.loads(text.partition("data: ")[2] or text)
    return str(response.get("response", response)["id"])
