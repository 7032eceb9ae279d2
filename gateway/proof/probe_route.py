"""A route of a worker that can be asked how it renders a chat. No I/O: `probing.py`."""

from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec

from render.body import Json

CLOSED = frozenset({404, 405})
"""Statuses of a route that a worker does not have."""
TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]

Express = Callable[[Mapping[str, object]], Json | None]
"""A chat body -> what the route is asked, None: it would not read all of it."""


class ProbeRoute(msgspec.Struct, frozen=True, kw_only=True):
    """One such route, as its engine's file describes it.

    `ids` is where the answer has the token ids; `closed` are the statuses of a worker
    that does not offer the route; `generates` whether asking costs a prefill.
    """

    path: str
    ids: tuple[str, ...]
    express: Express = dict
    closed: frozenset[int] = CLOSED
    generates: bool = False

    def read(self, answer: bytes) -> list[int] | None:
        """The ids in an answer, None where there are none."""
        try:
            found = msgspec.json.decode(answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        for name in self.ids:
            if isinstance(found, list) and found:  # the first choice of an answer
                found = found[0]
            found = found.get(name) if isinstance(found, dict) else None
        try:
            return msgspec.convert(found, list[TokenId])
        except msgspec.ValidationError:
            return None


def only(fields: frozenset[str]) -> Express:
    """Chats with no other fields can be asked; a route ignores those it does not know.

    So it would answer another chat's ids.
    """
    return lambda body: dict(body) if fields.issuperset(body) else None


def without(fields: frozenset[str]) -> Express:
    """Chats as they are, but for fields that a chat of the engine does not have."""
    return lambda body: {n: value for n, value in body.items() if n not in fields}


def one_token(**ids: object) -> Express:
    """A chat of one token; `ids` are the fields that ask for its prompt's ids."""
    return lambda body: {**body, "max_tokens": 1, "temperature": 0, **ids}
