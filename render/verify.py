"""A sampled check in production: are the ids those the reference encoder gives?

The check runs in a thread of its own, after the ids have been handed out, one at a
time, on texts of bounded length: it never delays a request. Nothing of a text is kept
or logged. What happens on a difference is the encoder's business.
"""

import logging
import random
import threading
from collections.abc import Callable

from tokenizers import Tokenizer

from kvindex.blocks import pack_ids
from render.rust import RustFailed, rust

log = logging.getLogger(__name__)

MAX_TEXT = 1_000_000  # characters; longer ones are not checked
Run = Callable[[Callable[[], None]], None]


def beside(check: Callable[[], None]) -> None:
    """Run a check in a thread; the process does not wait for it at its end."""
    threading.Thread(target=check, name="verify-encoder", daemon=True).start()


class Verification:
    """Which texts are encoded again; counts them. Safe to use from several threads.

    `share` is the share of texts, from 0 (none) to 1.
    """

    def __init__(
        self,
        reference: Tokenizer,
        *,
        share: float,
        chance: random.Random | None = None,
        run: Run = beside,
    ) -> None:
        self._reference = reference
        self._share = share
        self._chance = chance or random.Random()
        self._run = run
        self._free = threading.Semaphore(1)
        self.checked = 0

    def offer(self, text: str, ids: bytes, on_difference: Callable[[], None]) -> None:
        """Check the ids of a text, if chance has it and no other check runs."""
        if self._share <= 0 or self._chance.random() >= self._share:
            return
        if len(text) > MAX_TEXT or not self._free.acquire(blocking=False):
            return

        def check() -> None:
            try:
                if not self._equal(text, ids):
                    on_difference()
            finally:
                self._free.release()

        try:
            self._run(check)
        except RuntimeError:  # no thread can be started
            self._free.release()
            log.warning("the encoder is not verified: no thread can be started")

    def _equal(self, text: str, ids: bytes) -> bool:
        def encode() -> bytes:
            (encoding,) = self._reference.encode_batch_fast(
                [text], add_special_tokens=False
            )
            return pack_ids(encoding.ids)

        try:
            equal = rust(encode) == ids
        except RustFailed as error:
            log.warning("the reference encoder failed on a text: %s", error)
            return True
        self.checked += 1
        return equal
