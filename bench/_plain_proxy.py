"""The baseline: the shortest streaming proxy one would write with aiohttp.

It does nothing that a gateway must: no choice, no accounts, no metrics, no retries, no
care for headers, dying workers or slow clients.
"""

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web


async def _serve(worker: str) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )

    async def forward(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {"Content-Type": request.content_type}
        async with session.post(
            worker + request.path, data=body, headers=headers
        ) as answer:
            kind = {"Content-Type": answer.headers["Content-Type"]}
            if answer.content_type != "text/event-stream":
                return web.Response(body=await answer.read(), headers=kind)
            response = web.StreamResponse(headers=kind)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/{path:.*}", forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"ready http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        uvloop.run(_serve(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(0)
