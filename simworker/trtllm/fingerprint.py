"""The `render_fingerprint` of a simulated TensorRT-LLM worker, and what goes wrong.

It is computed as the real one's is, for the transformers installed here. To equal a
renderer elsewhere, give it that one's: `--render-fingerprint-file`.
"""

import copy
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from render import Renderer, fingerprints
from render.fingerprint import sha256_json
from render.fingerprint_child import NoFingerprint
from simworker.options import BadOptions

log = logging.getLogger(__name__)

Json = dict[str, Any]

FIELDS = (
    "version", "model_type", "extension", "extension_render_version", "use_harmony",
    "custom_tokenizer", "input_processor", "templates.server", "templates.processor",
    "templates.tokenizer", "tokenizer.class", "tokenizer.vocab_size",
    "tokenizer.vocab_sha256", "tokenizer.special_tokens_sha256",
    "tokenizer.added_tokens_sha256", "tokenizer.init_kwargs_sha256",
    "tokenizer.encoding.kind", "tokenizer.encoding.sha256",
)  # fmt: skip
KINDS = ("equal", "missing", "incomplete", "error", "unauthorised", "garbage")
SLOW_S = 15.0


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """How `/server_info` answers. `kind` is one of `KINDS`, "differs" or "slow".

    `field` is what differs; `delay_s` is how long the answer takes.
    """

    kind: str = "equal"
    field: str = ""
    delay_s: float = 0.0


def read_mode(text: str) -> Mode:
    """A mode as an option tells it: a kind, `differs:FIELD`, or `slow[:SECONDS]`.

    Raises BadOptions.
    """
    kind, _, detail = text.partition(":")
    if kind in KINDS and not detail:
        return Mode(kind=kind)
    if kind == "differs" and detail in FIELDS:
        return Mode(kind=kind, field=detail)
    if kind == "slow" and (not detail or detail.replace(".", "", 1).isdecimal()):
        return Mode(kind=kind, delay_s=float(detail or SLOW_S))
    known = ", ".join((*KINDS, "differs:FIELD", "slow[:SECONDS]"))
    raise BadOptions(
        f"--render-fingerprint {text}: not one of {known}; fields are "
        f"{', '.join(FIELDS)}"
    )


def read_compared(path: Path) -> Json:
    """What another renderer compares: its fingerprint, or its whole `/server_info`.

    Raises BadOptions.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise BadOptions(f"--render-fingerprint-file {path}: {error}") from error
    compared = (found.get("render_fingerprint") or found).get("compared")
    if not isinstance(compared, dict):
        raise BadOptions(f"--render-fingerprint-file {path}: no compared fields in it")
    return compared


def compared_fields(renderer: Renderer) -> Json | None:
    """The fields of what a worker renders with, by the real recipe.

    It takes seconds the first time on a machine. None, with a line in the log, where
    there are none: the engine then leaves its fingerprint out.
    """
    try:
        return dict(fingerprints.compute(renderer).compared)
    except NoFingerprint as error:
        log.warning("there is no fingerprint: %s", error)
        return None


def fingerprint(compared: Mapping[str, object], mode: Mode) -> Json:
    """The whole fingerprint, as `mode` bends it."""
    shown: Json = copy.deepcopy(dict(compared))
    if mode.kind == "differs":
        _change(shown, mode.field)
    elif mode.kind == "incomplete":
        tokenizer = shown.setdefault("tokenizer", {})
        tokenizer["encoding"], tokenizer["complete"] = None, False
    return {
        "digest": sha256_json(shown),
        "compared": shown,
        "info": {"tool_parser": None, "reasoning_parser": None},
    }


def _change(compared: Json, path: str) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        compared = compared.setdefault(parent, {})
    value = compared.get(name)
    if isinstance(value, bool):
        compared[name] = not value
    elif isinstance(value, int):
        compared[name] = value + 1
    else:
        compared[name] = sha256_json([value])
