"""No text of a prompt is logged: all kinds of requests, also bad ones, at debug."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.gateway.command import serving
from tests.gateway.scripted import ANSWER, worker
from tests.running import MODEL, StartGateway, StartWorker

MARK = "XYZZYMARKER"
CHAT = "/v1/chat/completions"
NESTED = '{"a":' * 2000 + f'"{MARK}"' + "}" * 2000
ODD = f"{MARK} \ud800 \x00 <|im_start|>{MARK}<|im_end|> {{{{ {MARK} }}}}"


def _user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def _tool(name: str, parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


JSON_BODIES: list[tuple[str, Any]] = [
    (CHAT, {"messages": _user(MARK)}),
    (CHAT, {"messages": _user(MARK), "stream": True}),
    (CHAT, {"messages": _user(ODD)}),
    (CHAT, {"messages": _user([{"type": "text", "text": MARK}])}),
    (CHAT, {"messages": _user([{"type": MARK, MARK: MARK}])}),
    (CHAT, {"messages": _user([{"type": "image_url", "image_url": {"url": MARK}}])}),
    (CHAT, {"messages": MARK}),
    (CHAT, {"messages": [MARK, {"role": MARK}]}),
    (CHAT, {"messages": [{"role": MARK, "content": MARK}]}),
    (CHAT, {"messages": _user({MARK: MARK})}),
    (CHAT, {"messages": _user(MARK), "model": MARK}),
    (CHAT, {"messages": _user(MARK), "tools": MARK}),
    (CHAT, {"messages": _user(MARK), "tools": [_tool(MARK, {MARK: MARK})]}),
    (CHAT, {"messages": _user(MARK), "chat_template": "{{ " + MARK}),
    (CHAT, {"messages": _user(MARK), "chat_template": "{{ raise_exception('x') }}"}),
    (CHAT, {"messages": _user(MARK), "chat_template_kwargs": {MARK: [MARK]}}),
    (CHAT, {"messages": _user(MARK), "chat_template_kwargs": MARK}),
    (CHAT, {"messages": _user(MARK), "max_tokens": MARK}),
    (CHAT, {"messages": _user(MARK), "session_id": MARK, "user": MARK}),
    (CHAT, {"messages": _user(MARK * 20_000)}),
    (
        CHAT,
        {
            "messages": [
                *_user("x"),
                {
                    "role": "assistant",
                    "tool_calls": [{"function": {"name": MARK, "arguments": MARK}}],
                },
                {"role": "tool", "content": MARK, "tool_call_id": MARK},
            ]
        },
    ),
    ("/v1/completions", {"prompt": MARK}),
    ("/v1/completions", {"prompt": [MARK, MARK]}),
    ("/v1/completions", {"prompt": {MARK: 1}}),
    ("/v1/completions", {"prompt": [1, MARK, -5]}),
    ("/v1/responses", {"input": MARK}),
    ("/v1/responses", {"input": [{"type": MARK, "content": MARK}]}),
    ("/v1/responses", {"input": MARK, "previous_response_id": MARK}),
    ("/v1/embeddings", {"input": MARK}),
    ("/v1/messages", {"messages": _user(MARK), "system": MARK}),
    ("/v1/chat/completions/render", {"messages": _user(MARK)}),
    ("/v1/chat/completions/render", {"messages": MARK}),
    ("/v1/completions/render", {"prompt": MARK}),
    ("/v1/completions/derender", {"generate_responses": MARK}),
    ("/v1/chat/completions/derender", {"generate_response": {MARK: MARK}}),
    ("/inference/v1/generate", {"token_ids": MARK}),
    ("/gateway/explain", {"messages": _user(MARK)}),
    ("/gateway/explain", {"messages": MARK}),
    ("/gateway/workers", {"url": MARK}),
    (f"/v1/{MARK}", {"prompt": MARK}),
    (f"/collective_rpc?{MARK}", {MARK: MARK}),
]
RAW_BODIES: list[bytes] = [
    MARK.encode(),
    f'{{"messages": "{MARK}'.encode(),
    NESTED.encode(),
    b'{"messages": [{"role": "user", "content": "\xff\xfe' + MARK.encode() + b'"}]}',
    b"\x00" + MARK.encode(),
    b"[" + json.dumps(MARK).encode() + b"]",
    b"",
]
HEADERS: list[dict[str, str]] = [
    {"traceparent": MARK, "tracestate": MARK},
    {"X-Session-ID": MARK},
    {"Content-Encoding": "gzip"},
    {"Content-Type": MARK},
    {"X-data-parallel-rank": MARK},
    {"Authorization": f"Bearer {MARK}"},
]


async def _send_all(url: str) -> int:
    """Send every kind of request; how many were answered."""
    answered = 0
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(url, timeout=timeout) as client:
        bodies: list[tuple[str, bytes, dict[str, str]]] = [
            (path, json.dumps({"model": MODEL} | body).encode(), {})
            for path, body in JSON_BODIES
        ]
        bodies += [(CHAT, body, {}) for body in RAW_BODIES]
        plain = json.dumps({"model": MODEL, "messages": _user(MARK)}).encode()
        bodies += [(CHAT, plain, headers) for headers in HEADERS]
        for path, data, headers in bodies:
            sent = {"Content-Type": "application/json"} | headers
            async with client.post(path, data=data, headers=sent) as response:
                await response.read()
                answered += 1
    for head in (
        f"GET /{MARK} HTTP/9.9\r\n\r\n",
        f"{MARK} {MARK}\r\n\r\n",
        f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n{MARK} bad: {MARK}\r\n\r\n",
        f"{MARK} /v1/{MARK} HTTP/1.1\r\nHost: x\r\n\r\n",
        f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{MARK}",
        f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{MARK}",
    ):
        await _send_raw(url, head.encode())
    return answered


async def _send_raw(url: str, data: bytes) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    writer.write_eof()
    async with asyncio.timeout(10):
        await reader.read()
    writer.close()


def _logged(model_dir: Path, worker_url: str, *words: str) -> str:
    """Everything that a gateway writes while it is sent all of that."""
    every = ("--host", "127.0.0.1", "--port", "0", "--drain-delay", "0")
    model = ("--model", f"{MODEL}={model_dir}", "--log-level", "debug")
    words = ("--workers", worker_url, *every, *model, *words)
    with serving(*words) as (process, url), ThreadPoolExecutor(1) as executor:
        assert process.stderr is not None
        written = executor.submit(process.stderr.read)  # lines are lost in a full pipe
        assert asyncio.run(_send_all(url)) > 50
        process.terminate()
        return written.result(timeout=20)


async def test_nothing_of_a_prompt(model_dir: Path, start_worker: StartWorker) -> None:
    """Not in a line for a change, nor in the access log, nor in a stack trace."""
    sim = await start_worker()
    options = ("--log-format", "json", "--access-log")
    written = await asyncio.to_thread(_logged, model_dir, sim.url, *options)
    assert MARK not in written
    assert written.count("gateway.access") > 50


async def test_unless_that_is_asked_for(
    start_gateway: StartGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """With --log-prompts bodies are logged, and a warning says so at the start."""
    async with worker(ANSWER) as raw:
        gateway = await start_gateway(raw.url, log_prompts=True, log_level="error")
        await gateway.post(CHAT, {"messages": _user(f"{MARK}\n\u2028" + "x" * 99_999)})
    warning, logged = (r for r in caplog.records if r.name == "gateway.prompts")
    assert warning.levelname == "WARNING"
    assert "WHAT CLIENTS WRITE IS LOGGED" in warning.getMessage()
    line = logged.getMessage()
    assert MARK in line
    assert "(the first 65536 of 100" in line
    assert len(line.splitlines()) == 1
