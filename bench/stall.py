"""Gaps between the events of other streams while one request is tokenized for 2 s."""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Sequence

from aiohttp import web

from bench._processes import percentile
from gateway.app import Gateway
from gateway.config import Config
from gateway.server import make_runner
from render import Rendered
from simworker.model import demo_model_dir

STREAMS = 20
EVENT_S = 0.02
EVENTS = 250


async def _events(request: web.Request) -> web.StreamResponse:
    await request.read()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(EVENTS):
        await response.write(b'data: {"n": %d}\n\n' % number)
        await asyncio.sleep(EVENT_S)
    await response.write(b"data: [DONE]\n\n")
    return response


async def _models(_: web.Request) -> web.StreamResponse:
    return web.json_response({"object": "list", "data": [{"id": "m"}]})


async def _serve(app: web.Application) -> tuple[web.AppRunner, str]:
    runner = make_runner(app, shutdown_s=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    return runner, f"{host}:{port}"


async def _worker() -> None:
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/v1/chat/completions", _events)
    app.router.add_get("/v1/models", _models)
    _, address = await _serve(app)
    print(f"ready http://{address}", flush=True)
    await asyncio.Event().wait()


async def _stream(address: str, body: bytes) -> list[float]:
    """Seconds between the events of one stream."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
    )
    writer.write(head.encode() + b"\r\nContent-Type: application/json\r\n\r\n" + body)
    gaps, last = [], 0.0
    while line := await reader.readline():
        if line.startswith(b"data: {"):
            now = time.perf_counter()
            if last:
                gaps.append(now - last)
            last = now
        elif line.startswith(b"data: [DONE]"):
            break
    writer.close()
    return gaps


def _body(text: str) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "stream": True, "messages": messages}).encode()


async def _measure(address: str, long: bytes) -> tuple[list[float], float]:
    short = _body("hello")
    streams = [asyncio.create_task(_stream(address, short)) for _ in range(STREAMS)]
    await asyncio.sleep(1)
    slow = asyncio.create_task(_stream(address, long))
    gaps = [gap for stream in streams for gap in await stream]
    slow.cancel()
    return gaps, max(gaps)


async def _gateway(url: str, arguments: argparse.Namespace) -> None:
    config = Config(
        workers=((url,),),
        model=((None, str(demo_model_dir())),),
        render_deadline=5.0,
        max_render_bytes=1 << 30,
        encoder="tokenizers",
    )
    gateway = Gateway(config)
    runner, address = await _serve(await gateway.start())
    try:
        for name, text in (("none", "hello"), ("sleeping", "sleep"), ("encoding", "")):
            if name == "sleeping":
                _make_sleepy(gateway)
            if name == "encoding":
                text = os.urandom(arguments.bytes // 2).hex()
            gaps, worst = await _measure(address, _body(text))
            print(
                f"  slow request: {name:10} gaps p50 {1e3 * percentile(gaps, 0.5):.1f} "
                f"p99 {1e3 * percentile(gaps, 0.99):.1f} worst {1e3 * worst:.1f} ms"
            )
    finally:
        await runner.cleanup()
        await gateway.stop()


def _make_sleepy(gateway: Gateway) -> None:
    """Bodies that say sleep take two seconds of sleep to render."""
    renderer = gateway.renderers.find("m", "m")
    assert renderer is not None
    plain = renderer.render_chat

    def render_chat(body: bytes) -> Rendered:
        if b'"sleep"' in body:
            time.sleep(2)
        return plain(body)

    renderer.render_chat = render_chat  # type: ignore[method-assign, assignment]


def run(argv: Sequence[str]) -> None:
    """Print the gaps of other streams: undisturbed, one sleeping, one encoding."""
    import uvloop

    from bench._processes import running

    parser = argparse.ArgumentParser(prog="python -m bench stall", description=__doc__)
    parser.add_argument("--bytes", type=int, default=1_600_000)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.worker:
        uvloop.run(_worker())
        return
    print(f"{STREAMS} streams through the gateway, an event every {EVENT_S} s;")
    print(f"another request is tokenized meanwhile ({arguments.bytes} bytes of hex)")
    with running("bench", "stall", "--worker") as (_, url):
        uvloop.run(_gateway(url, arguments))
