"""What a worker publishes of its rendering, on /server_info: asked, and read."""

from typing import Any

import msgspec

from gateway.proof.not_proven import NotProven
from gateway.workers.asking import Asker, TooLong

INFO_LIMIT = 512 * 1024
FINGERPRINT_LIMIT = 64 * 1024
UNAUTHORISED = frozenset({401, 403})
READS_MODE = frozenset({"poolside_v1", "laguna", "minimax_m3"})
"""Reasoning parsers that read the mode of a prompt from its text."""

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Published(msgspec.Struct, frozen=True):
    """What /server_info says of rendering."""

    render_fingerprint: msgspec.Raw = msgspec.Raw(b"null")
    reasoning_parser: object = None

    @property
    def fingerprint(self) -> object:
        """The published fingerprint, None where there is none."""
        if len(self.render_fingerprint) > FINGERPRINT_LIMIT:
            return False
        try:
            return msgspec.json.decode(self.render_fingerprint)
        except _UNREADABLE:
            return False

    @property
    def reads_mode(self) -> bool:
        """Whether its reasoning parser reads the mode of a prompt from its text."""
        told = self.fingerprint
        info: Any = told.get("info") if isinstance(told, dict) else None
        named = info.get("reasoning_parser") if isinstance(info, dict) else None
        return not READS_MODE.isdisjoint(
            name for name in (named, self.reasoning_parser) if isinstance(name, str)
        )


UNREADABLE = Published(render_fingerprint=msgspec.Raw(b"false"))


async def ask_published(asker: Asker) -> Published:
    """What the worker says now; raises NotProven and Unanswered."""
    try:
        page = await asker.get("/server_info", INFO_LIMIT)
    except TooLong:
        return UNREADABLE
    if page.status in UNAUTHORISED:
        text = f"/server_info answers {page.status}: see --worker-api-key"
        raise NotProven("unauthorised", text)
    if page.status in (404, 405):
        return Published()
    if page.status != 200:
        raise NotProven("unreachable", f"/server_info answers {page.status}")
    try:
        return msgspec.json.decode(page.body, type=Published)
    except _UNREADABLE:
        return UNREADABLE
