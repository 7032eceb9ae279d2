"""The model that a form names: audio and images come with their fields as parts.

A form (RFC 7578) is relayed as it comes, byte by byte, and never held as a whole: just
until its model is found, which may come after the file. Only where workers have
different models does it matter.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from email.message import Message
from email.parser import BytesHeaderParser

FORM = "multipart/form-data"
HELD_BYTES = 32 * 1024 * 1024
"""Of a form that has not told its model yet: OpenAI takes audio of 25 MB."""
LONGEST_HEAD = 16 * 1024
LONGEST_NAME = 4096
MOST_PARTS = 100
"""That are looked at: to read the head of one takes 0.04 ms."""

Take = Callable[[int], None]


class ModelField:
    """Looks for the field `model` in the bytes of a form, as they come."""

    def __init__(self, content_type: str) -> None:
        """`content_type` is that of the form, with its boundary."""
        boundary = _boundary(content_type)
        self.model: str | None = None
        self._delimiter = f"\r\n--{boundary}".encode("utf-8", "replace")
        self._bytes = bytearray(b"\r\n")  # no line comes before the first delimiter
        self._in_head = self._wanted = False
        self._parts = 0
        self._over = boundary is None

    def feed(self, piece: bytes) -> bool:
        """Whether enough was seen: the model, or that there is none to be found."""
        self._bytes += piece
        while not self._over and (self._head() if self._in_head else self._part()):
            pass
        return self._over

    def _part(self) -> bool:
        """Read to the next delimiter; whether it was there."""
        end = self._bytes.find(self._delimiter)
        if self._wanted:
            self._over = end >= 0 or len(self._bytes) > LONGEST_NAME
            if 0 < end <= LONGEST_NAME:
                self.model = self._bytes[:end].decode("utf-8", "replace")
        elif end < 0:  # its last bytes may be the first of a delimiter
            del self._bytes[: -len(self._delimiter)]
        if end >= 0:
            del self._bytes[: end + len(self._delimiter)]
            self._in_head = True
            self._parts += 1
            self._over = self._over or self._parts > MOST_PARTS
        return end >= 0

    def _head(self) -> bool:
        """Read the head of a part; whether all of it was there."""
        end = self._bytes.find(b"\r\n\r\n")
        last = self._bytes.startswith(b"--")
        self._over = last or max(end, len(self._bytes) * (end < 0)) > LONGEST_HEAD
        if end >= 0:
            self._wanted = _is_model(bytes(self._bytes[:end]))
            del self._bytes[: end + 4]
            self._in_head = False
        return end >= 0


async def model_of(
    content_type: str, pieces: AsyncIterator[bytes], take: Take
) -> tuple[str | None, AsyncIterator[bytes]]:
    """The model that a form names early enough, and all the pieces of the form.

    `take` is told of the bytes that are held. Raises what it raises, and `pieces`.
    """
    field, held, size = ModelField(content_type), deque[bytes](), 0
    async for piece in pieces:
        take(len(piece))
        held.append(piece)
        size += len(piece)
        if field.feed(piece) or size > HELD_BYTES:
            break
    return field.model, _all(held, pieces)


async def _all(held: deque[bytes], more: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while held:
        yield held.popleft()
    async for piece in more:
        yield piece


def _boundary(content_type: str) -> str | None:
    message = Message()
    message["Content-Type"] = content_type
    try:
        return message.get_boundary()
    except ValueError:  # what email.message cannot read of a header, here and below
        return None


def _is_model(head: bytes) -> bool:
    """Whether a part is the field: a file of that name is none."""
    parsed = BytesHeaderParser().parsebytes(head.lstrip(b"\r\n"))
    try:
        name = parsed.get_param("name", header="content-disposition")
        return name == "model" and parsed.get_filename() is None
    except ValueError:
        return False
