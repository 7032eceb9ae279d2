"""A stand-in for the process that identifies tokenizers, for tests without it."""

from pathlib import Path
from typing import Any

from render import Renderer, fingerprints
from render.fingerprint import Fingerprint, sha256_json
from render.fingerprint_cache import FingerprintCache
from render.fingerprint_child import Deadline
from tests.render.models import CHATML

TOLD: dict[str, Any] = {
    "processor_template": sha256_json(CHATML),
    "tokenizer_template": sha256_json(CHATML),
    "tokenizer": {"class": "x", "encoding": {"kind": "tokenizers"}, "complete": True},
    "libraries": {"transformers": "5.0.0", "tokenizers": "0.23.0"},
    "differing_text": None,
}


class Child:
    """Stands in for the process: tells the same, and counts."""

    def __init__(self, told: Any = TOLD) -> None:
        self.told = told
        self.calls = 0

    def __call__(self, model: Path, tokenizer: Path, until: Deadline) -> dict[str, Any]:
        """What the process would tell."""
        self.calls += 1
        told: dict[str, Any] = self.told
        return told


def compute(
    path: Path, cache: FingerprintCache, child: Any, **more: Any
) -> Fingerprint:
    """The fingerprint of a directory."""
    loaded = Renderer.load(path, **more)
    return fingerprints.compute(loaded, cache=cache, child=child)


def cache_files(cache: FingerprintCache) -> list[Path]:
    """What it holds."""
    return sorted(cache._directory.glob("*.json"))
