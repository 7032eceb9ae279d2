"""One HTTP/1 answer of a worker, from the bytes of its connection. No I/O.

httptools (llhttp, strict) does the parsing; this file adds what a proxy needs:
interim answers are skipped, heads are bounded, and the end of the connection is told
apart from the end of the answer.
"""

import re

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gateway.errors import MalformedAnswer

MAX_HEAD = 64 * 1024
"""Bytes of all headers of an answer, with interim answers and trailers."""


_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")  # llhttp takes any in a reason


class ResponseParser:
    """Feed it what comes; the head is in `status`, `reason` and `headers`.

    `head_complete` and `complete` say how far the answer is. `keep_alive` says
    whether the connection can be used again, and means nothing before `complete`.
    """

    __slots__ = (
        "_answers_head",
        "_ends_with_connection",
        "_head_size",
        "_last_pieces",
        "_parser",
        "_pieces",
        "complete",
        "head_complete",
        "headers",
        "keep_alive",
        "on_body",
        "reason",
        "status",
    )

    def __init__(self, *, answers_head: bool) -> None:
        self.status = 0
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.head_complete = False
        self.complete = False
        self.keep_alive = False
        self._answers_head = answers_head
        self._head_size = 0
        self._ends_with_connection = False
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        """Called by httptools: without a call of Python's, as it comes most often."""
        self._last_pieces = 0  # of the read that completed the answer
        self._parser = HttpResponseParser(self)

    def feed(self, data: bytes) -> list[bytes]:
        """Take what one read brought; return the pieces of body in it.

        Raises MalformedAnswer, after which nothing more can be fed.
        """
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            cause = error.__context__
            if isinstance(cause, MalformedAnswer):
                raise cause from None
            if not self.complete:  # what follows a complete answer spoils only reuse
                raise MalformedAnswer("the worker's answer is not HTTP/1") from error
            self.keep_alive = False
        if not self.head_complete:
            self._count(len(data))
        pieces = self._pieces.copy()
        self._pieces.clear()
        if self.complete:
            del pieces[self._last_pieces :]
            self._last_pieces = 0
        return pieces

    def eof(self) -> None:
        """The connection has ended: the end of an answer without a length."""
        if self.head_complete and self._ends_with_connection:
            self.complete = True

    def release(self) -> None:
        """Nothing more is fed: end the cycle with httptools, so that no collector must.

        What was parsed stays.
        """
        del self._parser

    # What httptools calls.

    def on_message_begin(self) -> None:
        if self.complete:
            self.keep_alive = False

    def on_status(self, reason: bytes) -> None:
        if not self.complete:
            self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        if not self.head_complete:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status = self._parser.get_status_code()
        if self.status < 100 or _CONTROL.search(self.reason):
            raise MalformedAnswer("the worker's answer has no valid status line")
        if self.status < 200:
            if self.status == 101:
                raise MalformedAnswer("the worker switched protocols unasked")
            self.reason = b""
            self.headers = []
            return
        self.head_complete = True
        self.keep_alive = self._parser.should_keep_alive()
        self._see_framing()
        self.complete = self._answers_head

    def on_message_complete(self) -> None:
        if self.status >= 200 and not self.complete:
            self.complete = True
            self._last_pieces = len(self._pieces)

    def _see_framing(self) -> None:
        lengths = False
        for name, value in self.headers:
            lower = name.lower()
            if lower == b"content-length":
                lengths = True
            elif lower == b"transfer-encoding":
                if value.strip().lower() != b"chunked":
                    raise MalformedAnswer("the worker used an unasked transfer coding")
                lengths = True
        self._ends_with_connection = not lengths

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > MAX_HEAD:
            raise MalformedAnswer("the worker's headers are over 64 KiB")
