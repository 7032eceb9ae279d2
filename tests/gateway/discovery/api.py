"""A scripted Kubernetes API server over real HTTP: EndpointSlices, list and watch."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

PATH = "/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices"
Json = dict[str, Any]


def endpoint(address: str, *, uid: str | None = None, **conditions: bool) -> Json:
    """One endpoint; ready unless said otherwise."""
    told: Json = {"addresses": [address], "conditions": {"ready": True} | conditions}
    if uid is not None:
        told["targetRef"] = {"kind": "Pod", "name": f"pod-{uid}", "uid": uid}
    return told


def endpoint_slice(
    name: str,
    endpoints: Iterable[object],
    ports: Iterable[Mapping[str, object]] = ({"name": "http", "port": 8000},),
    family: str = "IPv4",
) -> Json:
    """An EndpointSlice as the API has it."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": name,
            "namespace": "llm",
            "labels": {"kubernetes.io/service-name": "vllm"},
        },
        "addressType": family,
        "endpoints": list(endpoints),
        "ports": [{"protocol": "TCP", **port} for port in ports],
    }


class ScriptedApi:
    """Keeps slices by name, with versions, and tells watchers of changes.

    `requests` has the query of each request, `tokens` its Authorization.
    """

    def __init__(self, service: str = "vllm") -> None:
        self._selector = f"kubernetes.io/service-name={service}"
        self.requests: list[dict[str, str]] = []
        self.tokens: list[str | None] = []
        self.slices: dict[str, Json] = {}
        self.version = 100
        self.oldest = 0
        """Watches from before this version are answered 410."""
        self.page = 500
        self.needed: str | None = None
        """The token that is needed; None: none is."""
        self.fails: list[web.Response] = []
        """Answers to the next requests, whatever they ask for."""
        self.mute = False
        """Watches are told nothing: they get what happens when they resume."""
        self._history: list[tuple[int, Json]] = []
        self._watches: dict[asyncio.Queue[bytes | None], int] = {}
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def lists(self) -> int:
        """The lists that were asked for, pages counted once."""
        asked = (r for r in self.requests if "watch" not in r)
        return sum("continue" not in r for r in asked)

    @property
    def watches(self) -> list[str]:
        """The versions that were watched from, in order."""
        return [r["resourceVersion"] for r in self.requests if "watch" in r]

    async def start(self) -> None:
        """Serve; at the same port again after `stop`."""
        app = web.Application()
        app.router.add_get(PATH, self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Be away."""
        self.drop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def put(self, told: Json) -> None:
        """Make a slice, or change it."""
        name = told["metadata"]["name"]
        self._happened("MODIFIED" if name in self.slices else "ADDED", told)
        self.slices[name] = told

    def delete(self, name: str) -> None:
        """Delete a slice."""
        self._happened("DELETED", self.slices.pop(name))

    def bookmark(self) -> None:
        """Tell watchers the version of now."""
        self.version += 1
        metadata = {"resourceVersion": str(self.version)}
        self.say({"type": "BOOKMARK", "object": {"metadata": metadata}})

    def expire(self) -> None:
        """Forget what happened so far, and tell watchers."""
        self.version += 1
        self.oldest, self._history = self.version, []
        status = {"kind": "Status", "code": 410, "reason": "Expired"}
        self.say({"type": "ERROR", "object": status})
        self.drop()

    def say(self, line: object) -> None:
        """Send a line to each watcher, as JSON or as it is."""
        raw = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
        for watch in self._watches:
            watch.put_nowait(raw)

    def drop(self) -> None:
        """End every watch."""
        for watch in self._watches:
            watch.put_nowait(None)

    def _happened(self, kind: str, told: Json) -> None:
        self.version += 1
        told["metadata"]["resourceVersion"] = str(self.version)
        event = {"type": kind, "object": json.loads(json.dumps(told))}
        self._history.append((self.version, event))
        if not self.mute:
            self.say(event)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(dict(request.query))
        token = request.headers.get("Authorization")
        self.tokens.append(token)
        assert request.query["labelSelector"] == self._selector
        if self.fails:
            return self.fails.pop(0)
        if self.needed is not None and token != f"Bearer {self.needed}":
            return web.json_response({"message": "Unauthorized"}, status=401)
        if "watch" in request.query:
            return await self._watch(request)
        return self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        first = int(request.query.get("continue", "0"))
        items = list(self.slices.values())
        metadata = {"resourceVersion": str(self.version)}
        if first + self.page < len(items):
            metadata["continue"] = str(first + self.page)
        page = items[first : first + self.page]
        return web.json_response({"metadata": metadata, "items": page})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        version = int(request.query["resourceVersion"])
        if version < self.oldest:
            return web.json_response({"message": "too old"}, status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for at, event in self._history:
            if at > version:
                queue.put_nowait(json.dumps(event).encode() + b"\n")
        self._watches[queue] = version
        try:
            while (line := await queue.get()) is not None:
                await response.write(line)
        finally:
            del self._watches[queue]
        return response
