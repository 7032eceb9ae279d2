"""A computation of fingerprints that takes as long as a test wants."""

import threading
from typing import Any

from render import Renderer
from render.fingerprint import Fingerprint, sha256_json
from render.fingerprint_child import Deadline, NoFingerprint


def told(renderer: Renderer, **more: Any) -> Fingerprint:
    """Stands in for the computation."""
    info = {k: v for k, v in more.items() if k.endswith("parser")}
    compared = {"model_type": renderer.model.model_type}
    return Fingerprint(digest=sha256_json(compared), compared=compared, info=info)


class Waiting:
    """A computation that takes until it is let go, or told to stop."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.calls = 0
        self.running = 0

    def __call__(self, renderer: Renderer, **more: Any) -> Fingerprint:
        """As `render.fingerprints.compute`."""
        self.calls += 1
        self.running += 1
        deadline: Deadline = more["deadline"]
        try:
            while not self.go.wait(0.01):
                if deadline.passed():
                    raise NoFingerprint(deadline.reason)
        finally:
            self.running -= 1
        return told(renderer, **more)
