"""Bodies of requests in the log, only with `--log-prompts`; else nothing is here.

Its logger is `gateway.prompts`, which is not silenced by `--log-level`.
"""

import logging

log = logging.getLogger("gateway.prompts")

MOST = 64 * 1024
"""Bytes of a body that are logged."""


class PromptLog:
    """Logs bodies, and says loudly that it does."""

    def __init__(self) -> None:
        log.setLevel(logging.INFO)
        log.warning(
            "--log-prompts: WHAT CLIENTS WRITE IS LOGGED, whoever reads this log reads "
            "their prompts"
        )

    def write(self, request_id: str, body: bytes) -> None:
        """Log a body, cut where it is long; line breaks and the like are escaped."""
        text = body[:MOST].decode("utf-8", "replace").encode("unicode_escape").decode()
        cut = f" (the first {MOST} of {len(body)} bytes)" if len(body) > MOST else ""
        log.info("request %s%s: %s", request_id, cut, text)
