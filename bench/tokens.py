"""Chats through the gateway in token mode against the same worker's own chat route."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import aiohttp
import msgspec

from bench._processes import running
from bench._token_requests import FORCED, REQUESTS, RESPONSES
from kvindex.blocks import unpack_ids
from render import Renderer

TIMEOUT = aiohttp.ClientTimeout(total=120)
COUNTED = {"include_usage": True}
END = 151645
"""The id by which Qwen3's answers end."""
DIFFERENT = frozenset({"created", "created_at", "system_fingerprint"})
"""Fields in which two answers of one worker differ, or that are the server's."""
SHOWN = 300
Json = dict[str, Any]


class Server(msgspec.Struct, frozen=True):
    """Who is asked."""

    client: aiohttp.ClientSession
    url: str
    model: str
    renderer: Renderer

    async def whole(self, path: str, fields: Json) -> Any:
        """A whole answer, as far as two of the same are equal."""
        async with self._post(path, fields) as response:
            return response.status, neutral(await response.json(content_type=None))

    async def streamed(self, path: str, fields: Json) -> Any:
        """A stream, its pieces put together, choice by choice."""
        options = {} if path == RESPONSES else {"stream_options": COUNTED}
        fields = {**fields, "stream": True, **options}
        async with self._post(path, fields) as response:
            text = await response.text()
        if response.status != 200:
            return response.status, neutral(json.loads(text))
        data = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
        events = [json.loads(one) for one in data if one != "[DONE]"]
        if path == RESPONSES:
            return 200, [neutral(e) for e in events if "delta" not in e["type"]]
        return data[-1], together(events)

    def _post(self, path: str, fields: Json) -> Any:
        limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
        body = {"model": self.model, limit: 12, "temperature": 0, **fields}
        text = body.pop(FORCED, None)
        if text is not None:
            prompt = {"prompt": text, "add_special_tokens": False}
            (rendered,) = self.renderer.render_completion(prompt)
            ids = [*unpack_ids(rendered.token_ids), END]
            body["structured_outputs"] = {"choice": [text]}
            body["allowed_token_ids"] = ids  # those it is usually made of
        headers = {"X-Request-Id": "same"}
        return self.client.post(self.url + path, json=body, headers=headers)


def neutral(value: Any) -> Any:
    """Without times and the names that were made for tool calls."""
    if isinstance(value, list):
        return [neutral(one) for one in value]
    if not isinstance(value, dict):
        return value
    left = {k: neutral(v) for k, v in value.items() if k not in DIFFERENT}
    for name in ("id", "item_id", "call_id"):
        if name in left and not str(left[name]).endswith("-same"):
            left[name] = len(left[name])
    left.pop("sequence_number", None)
    return left


def together(events: Sequence[Json]) -> Any:
    """What a stream says in all: of each choice, then of the whole."""
    choices: dict[int, Json] = {}
    for event in events:
        for choice in event.get("choices", ()):
            known = choices.setdefault(choice["index"], {})
            _add(known, {k: v for k, v in choice.items() if k != "delta"})
            _add(known, choice.get("delta") or {})
    heads = [neutral({**event, "choices": []}) for event in events]
    return [choices[index] for index in sorted(choices)], heads[0], heads[-1]


def _add(known: Json, piece: Json) -> None:
    for name, value in piece.items():
        if name == "tool_calls":
            _add_calls(known.setdefault(name, {}), value)
        elif name == "role" or name.endswith("_reason") or known.get(name) is None:
            known[name] = known.get(name) if value is None else value
        elif isinstance(value, str | list):
            known[name] = known[name] + value
        elif isinstance(value, dict):
            for inner, more in value.items():
                known[name][inner] = [*known[name][inner], *more]


def _add_calls(known: Json, calls: Sequence[Json]) -> None:
    for call in calls:
        said = known.setdefault(call["index"], {"name": "", "arguments": ""})
        for name, text in (call.get("function") or {}).items():
            said[name] += text or ""


async def _compare(worker: Server, gateway: Server, only: str | None) -> dict[str, str]:
    rows = {}
    for name, (path, fields) in REQUESTS.items():
        if only is not None and only != name:
            continue
        await worker.whole(path, fields)  # from now on its prompt is cached
        answers = await worker.whole(path, fields), await gateway.whole(path, fields)
        rows[name] = _said(*answers)
        streams = (
            await worker.streamed(path, fields),
            await gateway.streamed(path, fields),
        )
        rows[f"{name}, streamed"] = _said(*streams)
    return rows


def _said(theirs: Any, ours: Any) -> str:
    if theirs == ours:
        return "equal" if theirs[0] in (200, "[DONE]") else f"equal: {theirs[0]}"
    lines = [f"    {line[:SHOWN]}" for line in _differences(theirs, ours)]
    return "\n".join(["DIFFERS", *lines])


def _differences(theirs: Any, ours: Any, place: str = "") -> Iterator[str]:
    """Where two answers differ: the place, the worker's, the gateway's."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in {**theirs, **ours}:
            sides = theirs.get(name, "-"), ours.get(name, "-")
            yield from _differences(sides[0], sides[1], f"{place}.{name}")
    elif (
        isinstance(theirs, list | tuple)
        and isinstance(ours, list | tuple)
        and len(theirs) == len(ours)
    ):
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from _differences(one, other, f"{place}.{number}")
    elif theirs != ours:
        yield f"{place}: {theirs!r}, here {ours!r}"


async def _run(args: argparse.Namespace, gateway_url: str) -> dict[str, str]:
    async with aiohttp.ClientSession(timeout=TIMEOUT) as client:
        renderer = Renderer.load(args.model)
        worker = Server(client, args.worker, args.name, renderer)
        gateway = Server(client, gateway_url, args.name, renderer)
        return await _compare(worker, gateway, args.only)


def run(words: Sequence[str]) -> None:
    """Compare, print, and exit with status 1 where an answer differs."""
    parser = argparse.ArgumentParser(prog="python -m bench tokens", description=__doc__)
    add = parser.add_argument
    add("--worker", required=True, metavar="URL", help="vLLM with --enable-scale-out")
    add("--model", required=True, metavar="DIR", help="its model, for the gateway")
    add("--name", required=True, help="what the worker calls it")
    add("--reasoning-parser", metavar="NAME", help="the worker's")
    add("--tool-call-parser", metavar="NAME", help="the worker's")
    add("--only", metavar="NAME", help="one of the requests")
    args = parser.parse_args(words)
    serve = ["gateway", "serve", "--workers", args.worker, "--worker-api", "tokens"]
    serve += ["--model", args.model, "--host", "127.0.0.1", "--port", "0"]
    for name in ("reasoning_parser", "tool_call_parser"):
        if getattr(args, name):
            serve += [f"--{name.replace('_', '-')}", getattr(args, name)]
    with running(*serve) as (_, url):
        rows = asyncio.run(_run(args, url))
    for name, said in rows.items():
        print(f"{name:34} {said}")
    equal = sum(said.startswith("equal") for said in rows.values())
    print(f"{equal} of {len(rows)} answers equal")
    sys.exit(0 if equal == len(rows) else 1)
