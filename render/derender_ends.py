"""Which ids end an answer, as a model's own configuration says."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from render.model import Model

log = logging.getLogger(__name__)

FILES = ("generation_config.json", "config.json")


def end_ids(model: Model, added_ids: Mapping[str, int]) -> frozenset[int]:
    """The ids of `generation_config.json`, else of the configuration, and of EOS."""
    found: set[int] = set()
    for name in FILES:
        found = found or _ids(model.path / name)
    end = model.special_tokens.get("eos_token")
    if end is not None and end in added_ids:
        found.add(added_ids[end])
    return frozenset(found)


def _ids(path: Path) -> set[int]:
    if not path.is_file():
        return set()
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read: %s", path, error)
        return set()
    given = config.get("eos_token_id") if isinstance(config, dict) else None
    ids = given if isinstance(given, list) else [given]
    return {one for one in ids if type(one) is int and one >= 0}
