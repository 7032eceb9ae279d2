"""What is derendered, whatever it holds: an answer, or the one error.

What is streamed is what the whole answer is.
"""

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from bench._fuzz_inputs import captured_exchanges
from bench._fuzz_parsers import Growth, broken, parsed, seeds
from bench._fuzz_target import Target
from gateway.endpoints.derender_endpoints import DONE, _Opened
from gateway.request.sse import WholeEvents, data_of, event
from render import Renderer, RenderOptions, RenderRefused, RenderService
from render.body import Json
from render.derender_answers import chat_choice
from render.derender_prompt import Prompt
from render.derender_request import read_chat_request, read_generated
from render.derender_stream import NOTHING
from render.request import read_request

T = TypeVar("T")

CHAT, COMPLETIONS = "/v1/chat/completions/derender", "/v1/completions/derender"
NAME = "tiny-qwen3"
HELD = 1 << 20
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
ANSWERS = (
    'why</think>so<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n',
    "plain é🚢 text<|im_end|>",
    '<think>\n\n</think>\n\n<tool_call>{"name": "f"</tool_call><tool_call>',
)


def derender_targets(renderer: Renderer) -> Mapping[str, Target]:
    """By name."""
    options = RenderOptions(served_model_names=(NAME,), max_model_len=4096)
    parsers = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
    services = [
        RenderService(renderer, options),
        RenderService(renderer, msgspec.structs.replace(options, **parsers)),
    ]
    chats = [*captured_exchanges(CHAT), *_bodies(renderer)]
    steps = [one for one in chats if b'"stream": true' in one]
    growth = Growth()
    texts = seeds()
    return {
        "derender chat": Target(chats, Bodies([s.derender_chat for s in services])),
        "derender completion": Target(
            [*captured_exchanges(COMPLETIONS), *steps],
            Bodies([s.derender_completions for s in services]),
        ),
        "derender steps": Target(steps, Steps(services)),
        "derender stream": Target([*_streams(renderer)], Streams(services)),
        "derender parsers": Target(texts, parsed, mutate=broken),
        "derender growth": Target(texts, growth, growth.told, broken),
    }


def _ids(renderer: Renderer, text: str) -> list[int]:
    (ids,) = renderer.render_completion({"prompt": text, "add_special_tokens": False})
    return memoryview(ids.token_ids).cast("I").tolist()


def _request(stop: object = None, choice: object = "auto") -> Json:
    messages = [{"role": "user", "content": "hi"}]
    asked = {"messages": messages, "tools": TOOLS, "stop": stop, "tool_choice": choice}
    return {**asked, "stream_options": {"include_usage": True}, "n": 2}


def _bodies(renderer: Renderer) -> Iterator[bytes]:
    """Whole answers, first chunks, and chunks with each kind of state."""
    for text in ANSWERS:
        ids = _ids(renderer, text)
        entries = [
            {
                "token_id": one,
                "logprob": -1.0,
                "top_logprobs": [{"token_id": one, "logprob": -1}],
            }
            for one in ids
        ]
        choice = {
            "index": 0,
            "token_ids": ids,
            "finish_reason": "stop",
            "logprobs": {"content": entries},
        }
        answer = {"request_id": "r", "choices": [choice], "usage": {"prompt_tokens": 3}}
        for stop, tool in ((None, "auto"), ("so", "required"), (["x", "}"], TOOLS[0])):
            asked = {"chat_request": _request(stop, tool), "prompt_token_ids": ids[:2]}
            yield msgspec.json.encode({"generate_response": answer, **asked})
            step = {
                "generate_chunk": answer,
                "stream": True,
                "prompt_token_ids": ids[:2],
            }
            window = {"prev_tokens": ["a", "b"], "read_offset": 1, "role_sent": True}
            replay = {"output_token_ids": ids[:9], "output_chunk_lens": [4, 5]}
            for state in (None, window, replay):
                body = {**step, **asked, "stream_state": state}
                yield msgspec.json.encode(body).replace(
                    b'"stream":true', b'"stream": true'
                )


def _streams(renderer: Renderer) -> Iterator[bytes]:
    """Streams of an engine, of two choices, with and without what opens them."""
    for text in ANSWERS:
        ids = _ids(renderer, text)
        opening = {"model": NAME, "prompt_token_ids": ids[:2]}
        for first in ([], [{**opening, "chat_request": _request("}")}], [opening]):
            chunks: list[Json] = [*first]
            for place in range(0, len(ids), 2):
                choices = [
                    {"index": i, "token_ids": ids[place : place + 2]} for i in (0, 1)
                ]
                chunks.append({"request_id": "r", "choices": choices})
            ends: list[Json] = [
                {"index": i, "token_ids": [], "finish_reason": "stop"} for i in (0, 1)
            ]
            usage = {"prompt_tokens": 2, "completion_tokens": 9}
            chunks.append({"request_id": "r", "choices": ends, "usage": usage})
            yield b"".join(event(msgspec.json.encode(one)) for one in chunks) + event(
                DONE
            )


class Bodies:
    """An answer that is JSON, or the one error, which is JSON too."""

    def __init__(self, calls: Iterable[Callable[[bytes], Json]]) -> None:
        self._calls = [*calls]

    def __call__(self, data: bytes) -> None:
        for call in self._calls:
            msgspec.json.encode(answered(call, data))


def answered(call: Callable[[bytes], Json], data: bytes) -> Json:
    """The answer, or the error in its place."""
    try:
        return call(data)
    except RenderRefused as refused:
        return refused.body()


class Steps:
    """A chunk with a state; the state that comes of it is one for the next chunk.

    The first chunk of an answer, cut, says what the whole one says.
    """

    def __init__(self, services: Iterable[RenderService]) -> None:
        self._services = [*services]

    def __call__(self, data: bytes) -> None:
        for service in self._services:
            with contextlib.suppress(RenderRefused):
                got = service.derender_chat(data)
                body = msgspec.json.decode(data)
                if "stream_state" in got:
                    after = {**body, "stream_state": got["stream_state"]}
                    self._next(service, after)

    def _next(self, service: RenderService, body: Json) -> None:
        choices = (body["generate_chunk"].get("choices") or [{}])[:1]
        body["generate_chunk"] = (
            {"choices": [{**choices[0], "token_ids": [], "logprobs": None}]}
            if choices[0]
            else {"choices": []}
        )
        got = answered(service.derender_chat, msgspec.json.encode(body))
        error = got.get("error", {}).get("message", "max_model_len")
        assert "max_model_len" in error, error


class Streams:
    """An engine's stream in two ways of cutting it, and its ids as one answer."""

    def __init__(self, services: Iterable[RenderService]) -> None:
        self._services = [*services]

    def __call__(self, data: bytes) -> None:
        size = (1, 5, 100, 1000)[zlib.crc32(data) % 4]
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        for service in self._services:
            said = asyncio.run(_streamed(service, [data]))
            assert asyncio.run(_streamed(service, pieces)) == said, "cuts matter"
            if not any("error" in one for one in said):
                _check_whole(service, data, said)


async def _streamed(service: RenderService, pieces: Iterable[bytes]) -> list[Json]:
    """The events that a stream is answered with, without what is new each time."""
    opened = _Opened(_Only(service), _at_once)
    events, out = WholeEvents(max_held=HELD), b""
    try:
        for piece in [*pieces, b""]:
            whole = events.feed(piece) if piece else events.rest()
            data = [*data_of(whole)]
            await opened.open(data)
            out += opened.feed(data)
            opened.check()
        out += opened.end()
    except RenderRefused as refused:
        out += event(msgspec.json.encode(refused.body()))
    said = [msgspec.json.decode(one) for one in data_of(out) if one != DONE]
    for chunk in said:
        for choice in chunk.get("choices", ()):
            for call in choice["delta"].get("tool_calls", ()):
                del call["id"]
        chunk.pop("id", None), chunk.pop("created", None)
    return said


class _Only(msgspec.Struct, frozen=True):
    """The one service, for any body."""

    service: RenderService

    async def find(self, body: bytes) -> RenderService:
        return self.service


async def _at_once(work: Callable[[], T]) -> T:
    return work()


def _check_whole(service: RenderService, data: bytes, said: Iterable[Json]) -> None:
    """Each choice says in its stream what the whole one says."""
    opening, chunks = _chunks(data)
    derenderer, streamed = service.derenderer(), _joined(said)
    request = read_chat_request(opening.get("chat_request"))
    asked = derenderer.asked(request, chat=True)
    prompt = opening.get("prompt_token_ids")
    given: dict[int, Json] = {}
    for chunk in chunks:
        prompt = chunk["prompt_token_ids"] if prompt is None else prompt
        for choice in chunk["choices"]:
            known = given.setdefault(
                choice["index"],
                {**NOTHING, "prompt": prompt, "token_ids": [], "index": 0},
            )
            if known["finish_reason"] is None:
                known["token_ids"] += choice["token_ids"] or []
                known["finish_reason"] = choice["finish_reason"]
                known["stop_reason"] = choice["stop_reason"]
    for index, whole in given.items():
        message = derenderer.chat_choice(whole, asked, Prompt(whole.pop("prompt")))
        shown = chat_choice(message, whole, request, parsed=asked.parsed)
        assert streamed.get(index) == _heard(shown["message"]), "not the whole answer"


def _chunks(data: bytes) -> tuple[Json, list[Json]]:
    """What opens a stream, and its chunks."""
    held = WholeEvents(max_held=HELD)
    found = [*data_of(held.feed(data) + held.rest())]
    if DONE in found:
        found = found[: found.index(DONE)]
    read = [read_request(one) for one in found]
    first = read.pop(0) if read and "choices" not in read[0] else {}
    return first, [read_generated(one, "generate_chunk", stream=True) for one in read]


def _heard(message: Json) -> list[Any]:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return [message["reasoning"] or "", message["content"] or "", calls]


def _joined(said: Iterable[Json]) -> dict[int, list[Any]]:
    """Reasoning, content and calls of each choice of a stream."""
    heard: dict[int, list[Any]] = {}
    for chunk in said:
        for choice in chunk["choices"]:
            known, delta = (
                heard.setdefault(choice["index"], ["", "", []]),
                choice["delta"],
            )
            known[0] += delta.get("reasoning") or ""
            known[1] += delta.get("content") or ""
            known[2] += [call["function"] for call in delta.get("tool_calls") or ()]
    return heard
