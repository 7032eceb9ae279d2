"""Derender long answers: in one pass, in pieces, and by vLLM's state for each chunk.

Microseconds of processor time for each output token, of answers with reasoning, text
and a tool call; then the worst inputs that are known for each step. The output is
Markdown; answers that differ end it with status 1.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial

from bench._machine import machine
from bench._texts import Texts
from render import Renderer, RenderOptions, RenderService
from render.body import Json
from simworker.model import demo_model_dir

SIZES = (1_000, 8_000, 32_000)
STATE_SIZES = (250, 500, 1_000)
LIMIT = 200_000  # tokens of the context
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "write_file",
            "parameters": {"properties": {"text": {"type": "string"}}},
        },
    }
]
REQUEST = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}
STOPS = {**REQUEST, "stop": ["\n\nUser:", "<|never|>"]}
PROMPT = [1, 2, 3]


class Measured:
    """One model's services, and answers of any length."""

    def __init__(self) -> None:
        self.renderer = Renderer.load(demo_model_dir())
        self.parsed = self._service("qwen3", "hermes")
        self.plain = self._service(None, None)
        self._texts = Texts(1)

    def _service(self, reasoning: str | None, tools: str | None) -> RenderService:
        options = RenderOptions(
            served_model_names=("model",),
            max_model_len=LIMIT,
            reasoning_parser=reasoning,
            tool_call_parser=tools,
        )
        return RenderService(self.renderer, options)

    def answer(self, tokens: int) -> list[int]:
        """Ids of a third reasoning, a third text, and a tool call with the rest."""
        third = self._texts.text(int(tokens * 1.6))
        call = {"name": "write_file", "arguments": {"text": third}}
        written = (
            f"{third}</think>\n\n{third}<tool_call>\n{json.dumps(call)}\n</tool_call>"
        )
        return self.ids(written)

    def ids(self, text: str) -> list[int]:
        """The ids of a text."""
        body = {"prompt": text, "add_special_tokens": False}
        (rendered,) = self.renderer.render_completion(body)
        return memoryview(rendered.token_ids).cast("I").tolist()


def one_shot(service: RenderService, ids: list[int], request: Json | None) -> Json:
    """The whole answer at once."""
    return _chat(service, _generated(ids, "stop"), request)


def streamed(service: RenderService, ids: list[int], request: Json | None) -> str:
    """The same, an id at a time; what was said, joined."""
    opening: Json = {"prompt_token_ids": PROMPT}
    if request is not None:
        opening["chat_request"] = request
    stream = service.derender_stream(opening)
    said: list[str] = []
    for place, token in enumerate(ids):
        last = "stop" if place == len(ids) - 1 else None
        said += _said(stream.feed(_chunk([token], last)))
    return "".join(said)


def stated(service: RenderService, ids: list[int], request: Json | None) -> str:
    """By vLLM's form: a request with the state for each id."""
    state, said = None, []
    for place, token in enumerate(ids):
        last = "stop" if place == len(ids) - 1 else None
        body = {
            "stream": True,
            "generate_chunk": _chunk([token], last),
            "stream_state": state,
            "prompt_token_ids": PROMPT,
            "chat_request": request,
        }
        got = service.derender_chat(json.dumps(body).encode())
        state = got["stream_state"]
        said += _said([got["chunk"]])
    return "".join(said)


def _chat(service: RenderService, response: Json, request: Json | None) -> Json:
    body = {
        "generate_response": response,
        "chat_request": request,
        "prompt_token_ids": PROMPT,
    }
    return service.derender_chat(json.dumps(body).encode())


def _generated(ids: list[int], reason: str | None) -> Json:
    choice = {
        "index": 0,
        "token_ids": ids,
        "finish_reason": reason,
        "stop_reason": None,
        "logprobs": None,
    }
    return {"request_id": "r", "choices": [choice]}


def _chunk(ids: list[int], reason: str | None) -> Json:
    """A chunk as it is after it was checked."""
    empty = {"usage": None, "prompt_token_ids": None, "metrics": None}
    return {**_generated(ids, reason), **empty}


def _said(chunks: list[Json]) -> list[str]:
    said = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            said += [delta.get("reasoning") or "", delta.get("content") or ""]
            calls = delta.get("tool_calls") or ()
            said += [call["function"]["arguments"] for call in calls]
    return said


def run(argv: Sequence[str]) -> None:
    """Print the tables; SystemExit where streamed and whole answers differ."""
    parser = argparse.ArgumentParser(
        prog="python -m bench derender", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each, the best (3)")
    rounds = parser.parse_args(argv).rounds
    print(machine(), end="\n\n")
    measured = Measured()
    _lengths(measured, rounds)
    _worst(measured)


def _lengths(measured: Measured, rounds: int) -> None:
    print("| output tokens | at once | streamed | with stop strings | plain |")
    print("|---|---|---|---|---|")
    for size in SIZES:
        ids = measured.answer(size)
        _check(measured, ids)
        ways: list[Callable[[], object]] = [
            partial(one_shot, measured.parsed, ids, REQUEST),
            partial(streamed, measured.parsed, ids, REQUEST),
            partial(streamed, measured.parsed, ids, STOPS),
            partial(streamed, measured.plain, ids, None),
        ]
        cells = [f"{best(way, rounds) / len(ids) * 1e6:.1f}" for way in ways]
        print(f"| {len(ids):,} | {' | '.join(cells)} |", flush=True)
    print("\nMicroseconds for each output token. By vLLM's form, a request each:\n")
    print("| output tokens | with parsers | plain |")
    print("|---|---|---|")
    for size in STATE_SIZES:
        ids = measured.answer(size)
        parsed = best(partial(stated, measured.parsed, ids, REQUEST), 1)
        plain = best(partial(stated, measured.plain, ids, None), 1)
        cells = [f"{took / len(ids) * 1e6:,.0f}" for took in (parsed, plain)]
        print(f"| {len(ids):,} | {' | '.join(cells)} |", flush=True)


def _check(measured: Measured, ids: list[int]) -> None:
    message = one_shot(measured.parsed, ids, REQUEST)["choices"][0]["message"]
    calls = "".join(c["function"]["arguments"] for c in message["tool_calls"])
    whole = (message["reasoning"] or "") + (message["content"] or "") + calls
    if whole != streamed(measured.parsed, ids, REQUEST):
        raise SystemExit("the streamed answer is another than the whole one")


def _worst(measured: Measured) -> None:
    added = measured.renderer.vocabulary.added_ids
    open_, close = added["<tool_call>"], added["</tool_call>"]
    (quote,) = measured.ids('"')
    (brace,) = measured.ids("{")
    lead = measured.ids("𓀀")[0]
    inputs = {
        "calls that open and never close": [open_],
        "empty calls": [open_, close],
        "calls that end in a text": [open_, quote, close],
        "brackets that never close": [open_, *[brace] * 7],
        "characters that never end": [lead],
        "reasoning that ends again and again": [added["</think>"]],
    }
    print("\n| worst inputs | 4,000 tokens | 32,000 tokens |")
    print("|---|---|---|")
    for name, pattern in inputs.items():
        cells = []
        for size in (4_000, 32_000):
            ids = (pattern * size)[:size]
            took = best(partial(streamed, measured.parsed, ids, STOPS), 1)
            cells.append(f"{took / size * 1e6:.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def best(way: Callable[[], object], rounds: int) -> float:
    """The least processor time of some rounds, in seconds."""
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        way()
        times.append(time.process_time() - begun)
    return min(times)
