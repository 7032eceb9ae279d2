"""One question to a worker of the gateway's own: bounded in time and in size."""

import os
from collections.abc import Mapping

import aiohttp

from gateway.workers.engines.facts import Page

TIMEOUT = aiohttp.ClientTimeout(total=10, connect=3)
CLOSED = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)
"""What ends a question whose connection the worker closes just then."""


class Unanswered(Exception):
    """There is no answer to what was asked at `path`; `why` says it without that."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.why = why


class TooLong(Unanswered):
    """There is one, of no reasonable size."""


class Asker:
    """Asks one worker."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        api_key: str | None,
        *,
        timeout: aiohttp.ClientTimeout = TIMEOUT,
        headers: Mapping[str, str] = {},
    ) -> None:
        """`headers` go along with each question."""
        self._session = session
        self._url = url
        self._timeout = timeout
        self._headers = {"Accept-Encoding": "identity", **headers}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    async def get(self, path: str, limit: int) -> Page:
        """The answer to a GET, of at most `limit` bytes; raises Unanswered."""
        return await self._ask("GET", path, limit, None)

    async def post(self, path: str, body: bytes, limit: int) -> Page:
        """The answer to a JSON body, of at most `limit` bytes; raises Unanswered.

        The body is sent a second time where the connection closes before an answer.
        """
        return await self._ask("POST", path, limit, body)

    async def _ask(
        self, method: str, path: str, limit: int, body: bytes | None
    ) -> Page:
        try:
            try:
                return await self._asked(method, path, limit, body)
            except CLOSED:  # perhaps it rested: aiohttp sends only a GET again
                if body is None:
                    raise
                return await self._asked(method, path, limit, body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unanswered(path, reason(error)) from None

    async def _asked(
        self, method: str, path: str, limit: int, body: bytes | None
    ) -> Page:
        headers = self._headers
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        async with self._session.request(
            method,
            self._url + path,
            data=body,
            headers=headers,
            timeout=self._timeout,
            allow_redirects=False,
        ) as response:
            return Page(response.status, await _read(response, path, limit))


async def _read(response: aiohttp.ClientResponse, path: str, limit: int) -> bytes:
    body = b""
    while more := await response.content.read(limit):
        body += more
        if len(body) > limit:
            raise TooLong(path, f"answers over {limit} bytes")
    return body


def reason(error: Exception) -> str:
    """Why a worker has not answered, in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"cannot connect: {_of_certificate(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return f"cannot connect: no TLS ({getattr(error.os_error, 'reason', None)})"
    if isinstance(error, aiohttp.ClientConnectorError):
        number, said = error.os_error.errno, error.os_error.strerror
        if number is not None and number > 0:  # name resolution has its own numbers
            said = os.strerror(number)
        return f"cannot connect: {said}"
    return f"{type(error).__name__}: {error}"


def _of_certificate(error: Exception) -> str:
    """What is wrong with the certificate that a worker has shown."""
    wrong = getattr(error, "verify_message", None) or str(error)
    return f"its certificate does not hold ({wrong})"
