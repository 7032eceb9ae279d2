"""Why a worker is not proven to render alike, on its way to the record of it."""

from router.proof import Blocker


class NotProven(Exception):
    """It is not; `blocker` says why, in one of the fixed words."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.blocker = Blocker(reason=reason, detail=detail)
