"""The `render_fingerprint` of a simulated TensorRT-LLM worker, and what goes wrong.

The real one hashes what transformers made of the tokenizer's files. This one is made
of the files, in the same shape: its digest equals that of another simulated worker of
the same model and template, not a real one's. To equal another renderer, give it that
one's: `--render-fingerprint-file`.
"""

import contextlib
import copy
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from render import Renderer
from simworker.options import BadOptions

Json = dict[str, Any]

VERSION = 2
FIELDS = (
    "version", "model_type", "extension", "extension_render_version", "use_harmony",
    "custom_tokenizer", "input_processor", "templates.server", "templates.processor",
    "templates.tokenizer", "tokenizer.class", "tokenizer.vocab_size",
    "tokenizer.vocab_sha256", "tokenizer.special_tokens_sha256",
    "tokenizer.added_tokens_sha256", "tokenizer.init_kwargs_sha256",
    "tokenizer.encoding.kind", "tokenizer.encoding.sha256",
)  # fmt: skip
# Of the tokenizer's options, those that can change ids.
INIT_KWARGS = (
    "add_prefix_space", "add_bos_token", "add_eos_token", "legacy",
    "split_special_tokens", "do_lower_case", "strip_accents",
    "tokenize_chinese_chars",
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


def compared_fields(renderer: Renderer, server_template: str | None) -> Json:
    """The fields of a model directory; takes about a second for a large vocabulary."""
    model = renderer.model
    tokenizer = msgspec.json.decode(model.tokenizer_file.read_bytes())
    tokenizer["truncation"] = tokenizer["padding"] = None
    template = _sha256(model.tokenizer_templates.get("default"))
    processor = model.processor_template
    return {
        "version": VERSION,
        "model_type": model.model_type,
        "extension": "ServingExtension",
        "extension_render_version": 1,
        "use_harmony": False,
        "custom_tokenizer": None,
        "input_processor": "default",
        "templates": {
            "server": _sha256(_template_text(server_template)),
            # A model without a processor has its tokenizer loaded in its place.
            "processor": template if processor is None else _sha256(processor),
            "tokenizer": template,
        },
        "tokenizer": _tokenizer_fields(renderer, tokenizer),
    }


def _template_text(given: str | None) -> str | None:
    """A template is given as a file or as its text."""
    with contextlib.suppress(OSError, ValueError):  # a text that can be no path
        if given is not None and Path(given).is_file():
            return Path(given).read_text()
    return given


def _tokenizer_fields(renderer: Renderer, tokenizer: Json) -> Json:
    path = renderer.model.path / "tokenizer_config.json"
    config = msgspec.json.decode(path.read_bytes()) if path.is_file() else {}
    vocabulary = tokenizer.get("model", {}).get("vocab")
    return {
        "class": config.get("tokenizer_class", "PreTrainedTokenizerFast"),
        "vocab_size": renderer.vocabulary_size,
        "vocab_sha256": _sha256(vocabulary),
        "special_tokens_sha256": _sha256(dict(renderer.model.special_tokens)),
        "added_tokens_sha256": _sha256(tokenizer.get("added_tokens")),
        "init_kwargs_sha256": _sha256(
            {name: config[name] for name in INIT_KWARGS if name in config}
        ),
        "encoding": {"kind": "tokenizers", "sha256": _sha256(tokenizer)},
        "complete": True,
    }


def fingerprint(compared: Mapping[str, object], mode: Mode) -> Json:
    """The whole fingerprint, as `mode` bends it."""
    shown: Json = copy.deepcopy(dict(compared))
    if mode.kind == "differs":
        _change(shown, mode.field)
    elif mode.kind == "incomplete":
        tokenizer = shown.setdefault("tokenizer", {})
        tokenizer["encoding"], tokenizer["complete"] = None, False
    return {
        "digest": _sha256(shown),
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
        compared[name] = _sha256([value])


def _sha256(value: object) -> str | None:
    """Of the JSON as Python writes it, keys sorted; what is not there stays null."""
    if value is None:
        return None
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
