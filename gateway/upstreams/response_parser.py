"""One HTTP/1 answer of a worker, from the bytes of its connection. No I/O.

httptools (llhttp, strict) does the parsing; this file adds what a proxy needs:
interim answers are skipped, heads are bounded, and the end of the connection is told
apart from the end of the answer.
"""

import re

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gateway.errors import MalformedAnswer

MAX_HEAD = 64 * 1024
"""Bytes of the head of an answer, with its interim answers, however they are cut.

Also those of its trailers.
"""

_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")  # llhttp takes any in a reason


class ResponseParser:
    """Feed it what comes; the head is in `status`, `reason` and `headers`.

    `head_complete` and `complete` say how far the answer is. `keep_alive` says
    whether the connection can be used again, and means nothing before `complete`.
    """

    __slots__ = (
        "_answers_head",
        "_ends_with_connection",
        "_last_pieces",
        "_parser",
        "_pieces",
        "_room",
        "_trailers",
        "_without_body",
        "complete",
        "head_complete",
        "headers",
        "keep_alive",
        "malformed",
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
        self.malformed: str | None = None
        """What is wrong with what came last; nothing more can be fed."""
        self._answers_head = answers_head
        self._room = MAX_HEAD  # bytes that the head may still take
        self._trailers = 0
        self._without_body = 0  # bytes of the last reads, if there was no body in them
        self._ends_with_connection = False
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        """Called by httptools: without a call of Python's, as it comes most often."""
        self._last_pieces = 0  # of the read that completed the answer
        self._parser = HttpResponseParser(self)

    def feed(self, data: bytes) -> list[bytes]:
        """Take what one read brought; return the pieces of body in it.

        They came before what is `malformed`, if anything is.
        """
        if not self.head_complete:
            data = self._feed_head(data)
        if self.malformed is None:
            try:
                self._parser.feed_data(data)
            except (HttpParserError, HttpParserUpgrade) as error:
                self._note(error)
        pieces = self._pieces.copy()
        self._pieces.clear()
        if self.complete:
            del pieces[self._last_pieces :]
            self._last_pieces = 0
        elif pieces:
            self._without_body = 0
        elif self.head_complete:
            self._bound(len(data))
        return pieces

    def _feed_head(self, data: bytes) -> bytes:
        """Parse as much as may be head, where that is not all; the rest."""
        room, self._room = self._room, self._room - len(data)
        if self._room >= 0:
            return data
        self._parse(data[:room])
        if not self.head_complete and self.malformed is None:
            self.malformed = "the worker's headers are over 64 KiB"
        return data[room:]

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        cause = error.__context__
        if self.complete:  # what follows a complete answer spoils only reuse
            self.keep_alive = False
        elif isinstance(cause, MalformedAnswer):
            self.malformed = cause.message
        else:
            self.malformed = "the worker's answer is not HTTP/1"

    def _bound(self, size: int) -> None:
        """Let no trailer grow without end: it is counted when it is whole."""
        self._without_body += size
        if self._without_body > 2 * MAX_HEAD:
            self.malformed = self.malformed or "the worker's trailers are over 64 KiB"

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
        if not self.head_complete:
            self.headers.append((name, value))
            return
        self._trailers += len(name) + len(value) + len(b": \r\n")
        if self._trailers > MAX_HEAD:
            raise MalformedAnswer("the worker's trailers are over 64 KiB")

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
        self._see_framing()
        self.head_complete = True
        self.keep_alive = self._parser.should_keep_alive()
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
