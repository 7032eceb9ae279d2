"""Gaps between the events of other streams while one request is tokenized for 2 s."""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Sequence

import uvloop
from aiohttp import web

from bench._processes import percentile, running
from gateway.app import Gateway
from gateway.serve import shorten_pauses
from gateway.server import make_runner
from gateway.settings.config import Config
from render import Rendered
from simworker.model import demo_model_dir

STREAMS = 20
EVENT_S = 0.02
EVENTS = 250
SLEEP = "sleep for two seconds"


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


async def _sent(
    address: str, body: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a chat has been asked for."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
    )
    writer.write(head.encode() + b"\r\nContent-Type: application/json\r\n\r\n" + body)
    return reader, writer


async def _first_event_s(address: str, body: bytes) -> float:
    """Seconds to the first event of a stream; the rest is not waited for."""
    begun = time.perf_counter()
    reader, writer = await _sent(address, body)
    while not (await reader.readline()).startswith(b"data: {"):
        if reader.at_eof():
            raise SystemExit("the slow request got no events")
    writer.close()
    return time.perf_counter() - begun


async def _stream(address: str, body: bytes) -> list[float]:
    """Seconds between the events of one stream."""
    reader, writer = await _sent(address, body)
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


async def _gaps(address: str, slow: bytes | None) -> tuple[list[float], float]:
    """The gaps of all streams, and how long the slow request beside them took."""
    short = _body("hello")
    streams = [asyncio.create_task(_stream(address, short)) for _ in range(STREAMS)]
    await asyncio.sleep(1)
    slow_s = await _first_event_s(address, slow) if slow else 0.0
    return [gap for stream in streams for gap in await stream], slow_s


async def _gateway(url: str) -> None:
    """A gateway whose renderer sleeps for two seconds where a body says so."""
    config = Config(
        workers=((url,),),
        model=((None, str(demo_model_dir())),),
        render_deadline=5.0,
        max_render_bytes=1 << 30,
        encoder="tokenizers",
    )
    gateway = Gateway(config)
    app = await gateway.start()
    shorten_pauses()
    renderer = gateway.renderers.find("m", "m")
    assert renderer is not None
    plain = renderer.render_chat

    def render_chat(body: bytes) -> Rendered:
        if SLEEP.encode() in body:
            time.sleep(2)
        return plain(body)

    # A method is replaced on purpose, by one that takes what this gateway hands it.
    renderer.render_chat = render_chat  # type: ignore[method-assign, assignment]
    _, address = await _serve(app)
    print(f"ready http://{address}", flush=True)
    await asyncio.Event().wait()


async def _compare(direct: str, through: str, size: int, rounds: int) -> None:
    for _ in range(rounds):
        slow = {
            "none": None,
            "sleeping 2 s": _body(SLEEP),
            # Another text each time: the encoder remembers the last one.
            "encoding": _body(os.urandom(size // 2).hex()),
        }
        for where, address in (("direct", direct), ("gateway", through)):
            for name, body in slow.items():
                if where == "direct" and body is not None:
                    continue
                seconds, slow_s = await _gaps(address, body)
                gaps = [1000 * gap for gap in seconds]
                print(
                    f"  {where:8} slow request: {name:12} {slow_s:3.1f} s  gaps "
                    f"p50 {percentile(gaps, 0.5):.1f} p99 {percentile(gaps, 0.99):.1f} "
                    f"worst {max(gaps):.1f} ms"
                )


def run(argv: Sequence[str]) -> None:
    """Print the gaps of other streams: undisturbed, one sleeping, one encoding."""
    parser = argparse.ArgumentParser(prog="python -m bench stall", description=__doc__)
    parser.add_argument("--bytes", type=int, default=2_200_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--gateway", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.worker:
        uvloop.run(_worker())
    elif arguments.gateway:
        uvloop.run(_gateway(arguments.gateway))
    else:
        _run(arguments.bytes, arguments.rounds)


def _run(size: int, rounds: int) -> None:
    print(
        f"{STREAMS} streams, an event every {EVENT_S} s; {size} bytes of hex to encode"
    )
    with (
        running("bench", "stall", "--worker") as (_, worker),
        running("bench", "stall", "--gateway", worker) as (_, gateway),
    ):
        addresses = [url.removeprefix("http://") for url in (worker, gateway)]
        uvloop.run(_compare(addresses[0], addresses[1], size, rounds))
