"""The routes of the live page: three files and an icon, and what happened of late.

The page reads the other routes of /gateway as anyone else does. It has no build step,
asks nothing of other hosts, and may not, by its Content-Security-Policy.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Any

from aiohttp import web

from gateway import answers
from gateway.guard import Guard, Handler

PATH = "/gateway/"
FILES: Mapping[str, tuple[str, str]] = {
    "": ("page.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The last part of a path -> the file, and what it is."""

_CONTENTS: Mapping[str, bytes] = {
    name: files(__package__).joinpath(name).read_bytes() for name, _ in FILES.values()
}
"""Read once, when nobody waits."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class PageRoutes:
    """The handlers of the page."""

    def __init__(
        self,
        of_late: Callable[[], Awaitable[Mapping[str, Any]]],
        *,
        check: Callable[[web.Request], None],
    ) -> None:
        """`of_late` tells what happened; `check` raises where one may not pass."""
        self._happened = of_late
        self._check = check

    def add_to(self, guard: Guard) -> None:
        """Add the routes."""
        for part, (name, content_type) in FILES.items():
            guard.add("GET", PATH + part, self._file(name, content_type), "page")
        guard.add("GET", PATH.rstrip("/"), self._slash, "page")
        guard.add("GET", PATH + "recent", self._of_late, "recent")

    def _file(self, name: str, content_type: str) -> Handler:
        body = _CONTENTS[name]

        async def answer(request: web.Request, identity: bytes) -> web.StreamResponse:
            self._check(request)
            response = answers.own(body, identity, content_type)
            response.headers.update(HEADERS)
            return response

        return answer

    async def _slash(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        """The page's links are relative to the path with a slash at its end."""
        self._check(request)
        response = answers.own(b"", identity, "text/plain", status=308)
        # Relative, so that it holds behind a proxy that puts the gateway below a path.
        response.headers["Location"] = "gateway/"
        return response

    async def _of_late(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        self._check(request)
        return answers.json(await self._happened(), identity)
