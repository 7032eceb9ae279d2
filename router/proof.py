"""What is known of each worker's rendering. Records, written by whoever proves it."""

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

    def covers(self, features: frozenset[str]) -> bool:
        """Whether requests with these features were proven."""
        return self.shapes is None or features <= self.shapes


class Blocker(msgspec.Struct, frozen=True, kw_only=True):
    """Why a worker is sent no ids: a fixed word for metrics, and the particulars."""

    reason: str
    detail: str = ""


PENDING = "pending"
IDS_REJECTED = "ids_rejected"
ONLY_IDS = Blocker(reason="only_ids", detail="it takes ids only: it renders nothing")
NOT_ASKED = Blocker(reason=PENDING, detail="its rendering is not proven yet")
