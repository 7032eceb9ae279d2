"""May the ids of a rendered request go along to its worker?

Records of what is known of each worker's rendering, written by whoever proves it.
"""

from typing import Literal

import msgspec


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """A worker renders as this gateway does.

    `shapes` are the features of requests that were proven; None: whatever they have.
    `reads_mode` is whether its reasoning parser reads the mode from the prompt's text,
    which it does not see where ids are sent.
    """

    by: Literal["digest", "probes"]
    shapes: frozenset[str] | None = None
    reads_mode: bool = False


class Blocker(msgspec.Struct, frozen=True, kw_only=True):
    """Why a worker is sent no ids: a fixed word for metrics, and the particulars."""

    reason: str
    detail: str = ""


NOT_ASKED = Blocker(reason="pending", detail="its rendering is not proven yet")
