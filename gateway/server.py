"""The HTTP server: aiohttp's, with every default that matters set on purpose."""

import logging

from aiohttp import web

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 75.0
"""Free client connections are kept this long; proxies before us keep theirs less."""

HEADER_LIMIT = 64 * 1024
"""Bytes of the request line, and of one header."""


def make_runner(app: web.Application, *, shutdown_s: float = 60.0) -> web.AppRunner:
    """The runner of `app`; whoever calls it sets it up and adds sites.

    What differs from aiohttp 3.14's defaults, and why:
    - a client that leaves cancels its handler, and so its request to the worker;
    - request bodies are not decompressed: a worker gets what the client sent;
    - long header lines pass, as workers take them (tokens, traces, cookies);
    - no access log line per request;
    - after an early answer the rest of the body is read for a few seconds, so that
      the client gets to read the answer.
    Bodies are limited by `gateway.body`, not by ``client_max_size``.
    """
    return web.AppRunner(
        app,
        handler_cancellation=True,
        auto_decompress=False,
        max_line_size=HEADER_LIMIT,
        max_field_size=HEADER_LIMIT,
        keepalive_timeout=KEEP_ALIVE_S,
        lingering_time=5.0,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=shutdown_s,
    )
