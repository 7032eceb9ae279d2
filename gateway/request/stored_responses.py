"""Which worker made a stored response: only that one can go on with it.

Engines keep what `/v1/responses` answered in the process that did. So the ids of
responses are learnt from the answers that pass, and a request that names one goes to
its worker. The table is bounded: what was made or asked for longest ago is forgotten.
It is not shared between gateways: `response_makers.py` finds what is not in it.
"""

import re
from collections import OrderedDict
from urllib.parse import unquote_to_bytes

MOST = 100_000
"""Ids remembered: some 20 MiB."""

ID_PREFIX = b"resp"
"""Engines' ids begin so."""

_PATH = re.compile(rb"/v1/responses/([^/?#]+)(?:[/?#].*)?", re.DOTALL)
_ID = re.compile(rb'"id"\s*:\s*"(resp[\x20-\x21\x23-\x5b\x5d-\x7e]{1,252})"')
_LOOKED_AT = 64 * 1024
"""Bytes of an answer in which its id is looked for: it comes first."""
_LONGEST = 300
"""Bytes of a key and an id, at most."""


class StoredResponses:
    """Response id -> URL of the worker that made it."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._made_by: OrderedDict[bytes, str] = OrderedDict()

    def __len__(self) -> int:
        """Ids remembered."""
        return len(self._made_by)

    def made(self, response_id: bytes, url: str) -> None:
        """The worker at that URL made this response."""
        self._made_by[response_id] = url
        self._made_by.move_to_end(response_id)
        if len(self._made_by) > self._most:
            self._made_by.popitem(last=False)

    def maker(self, response_id: bytes) -> str | None:
        """The worker that made it, if that is known."""
        url = self._made_by.get(response_id)
        if url is not None:
            self._made_by.move_to_end(response_id)
        return url


def named_in(path: bytes) -> bytes | None:
    """The id of the stored response that a request's path names.

    What no id begins with is the name of a route, such as `compact`.
    """
    found = _PATH.fullmatch(path)
    name = b"" if found is None else unquote_to_bytes(found[1])
    return name if name.startswith(ID_PREFIX) else None


class ResponseId:
    """Looks for the id of a response in its answer: JSON, or events with it inside."""

    def __init__(self, stored: StoredResponses, url: str) -> None:
        """What is found is noted as made by the worker at `url`."""
        self._stored = stored
        self._url = url
        self._tail = b""
        self._left = _LOOKED_AT

    def feed(self, data: bytes) -> None:
        """Look at a further piece of the answer."""
        if self._left <= 0:
            return
        data = self._tail + data[: self._left]
        self._left -= len(data) - len(self._tail)
        found = _ID.search(data)
        if found is None:
            self._tail = data[-_LONGEST:]
        else:
            self._stored.made(found[1], self._url)
            self._tail, self._left = b"", 0
