"""The rendering fingerprint that TensorRT-LLM publishes, and how two of them differ.

Two renderers with one digest make the same ids of a request. The recipe is that of
TensorRT-LLM 1.4 (version 2); `fingerprint_process.py` follows it for a tokenizer. No
library is loaded here. A digest that differs proves nothing: part of what it covers
changes with the release of transformers though ids do not. So fields are compared.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

VERSION = 2
SHOWN = 4
"""Fields named in a difference, and at most so much of each."""
SHOWN_CHARACTERS = 48

Reason = Literal[
    "no_fingerprint",  # there is none, on one side, or none that can be read
    "model_type_differs",
    "own_processor",  # code of the engine's own makes the prompt
    "template_differs",
    "tokenizer_differs",
    "incomplete",  # the tokenizer is not fully identified, on one side
    "library_differs",  # only what changes with a release of transformers
    "not_in_fingerprint",  # equal, but our ids depend on what none tells
    "clock",  # equal, but prompts have the date, and none tells of a worker's clock
]

FIELDS: Final[Mapping[str, Reason]] = {
    "version": "library_differs",
    "model_type": "model_type_differs",
    "extension": "own_processor",
    "extension_render_version": "own_processor",
    "use_harmony": "own_processor",
    "harmony": "own_processor",
    "harmony.version": "library_differs",
    "custom_tokenizer": "tokenizer_differs",
    "input_processor": "own_processor",
    "templates": "template_differs",
    "tokenizer": "tokenizer_differs",
    "tokenizer.class": "library_differs",
    "tokenizer.special_tokens_sha256": "library_differs",
    "tokenizer.init_kwargs_sha256": "library_differs",
    "tokenizer.encoding.sha256": "library_differs",
}
"""What it means that a field differs; one not named here is as what it is within.

Measured: the tokenizers of Qwen3, Llama 3.1 and gpt-oss, loaded by transformers 4.57
and by 5.24, give the same ids with another class, other special tokens
(`additional_special_tokens` is no longer one), other options (`add_bos_token` is not
kept) and another serialisation (`trim_offsets`, a post-processor that adds nothing);
vocabulary, added tokens and templates are equal. But the serialisation holds the merges
too, and those of DeepSeek-V3 and Llama 2 give other ids: where only such fields differ,
ids may differ or not. That is never proven here.
"""
UNKNOWN_FIELD: Reason = "library_differs"
"""A field of a release that is not known here."""
_BY_WEIGHT: tuple[Reason, ...] = (
    "model_type_differs",
    "own_processor",
    "template_differs",
    "tokenizer_differs",
    "library_differs",
)


class Difference(NamedTuple):
    """Why a fingerprint does not prove equal ids: a fixed word, and particulars."""

    reason: Reason
    detail: str


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the ids of a request.

    `info` is for people and is not compared. `unfit` is why an equal one does not prove
    equal ids, if so: it tells what transformers does, and the renderer does otherwise.
    """

    digest: str | None
    compared: Mapping[str, Any]
    info: Mapping[str, Any] = {}
    unfit: Difference | None = None

    def published(self) -> dict[str, Any]:
        """`render_fingerprint` of `/server_info`, as TensorRT-LLM has it."""
        return {"digest": self.digest, "compared": self.compared, "info": self.info}


def sha256_json(value: object) -> str | None:
    """Of a value as Python writes it in JSON, keys sorted; None stays None."""
    if value is None:
        return None
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def digest(compared: Mapping[str, Any]) -> str | None:
    """The digest of the compared fields."""
    return sha256_json(dict(compared))


def difference(ours: Fingerprint | None, theirs: object) -> Difference | None:
    """Why `theirs` does not prove that its renderer makes our ids; None: it does.

    `theirs` is whatever `render_fingerprint` of a `/server_info` was.
    """
    if ours is None:
        return Difference("no_fingerprint", "this gateway has none of its own")
    if theirs is None:
        return Difference("no_fingerprint", "it publishes none")
    compared = theirs.get("compared") if isinstance(theirs, Mapping) else None
    if not isinstance(theirs, Mapping) or not isinstance(compared, Mapping):
        return Difference("no_fingerprint", "what it publishes cannot be read")
    found = _by_reason(ours.compared, compared)
    if not found.keys() <= {"library_differs"}:
        reason = next(reason for reason in _BY_WEIGHT if reason in found)
        return Difference(reason, _listed(found[reason], ours.compared, compared))
    if (incomplete := _incomplete(ours, theirs, compared)) is not None:
        return Difference("incomplete", incomplete)
    if found:
        listed = _listed(found["library_differs"], ours.compared, compared)
        return Difference("library_differs", f"{listed}{_ADVICE}")
    if theirs.get("digest") != ours.digest:
        return Difference("library_differs", f"only its digest differs{_ADVICE}")
    unfit = ours.unfit
    return None if unfit is None else Difference(unfit.reason, unfit.detail + _SETTLED)


_ADVICE = (
    "; that may be another release of transformers only: --proof digest-or-probe "
    "compares ids instead"
)
_SETTLED = "; --proof digest-or-probe compares ids"


def _by_reason(
    ours: Mapping[str, Any], theirs: Mapping[Any, Any]
) -> dict[Reason, list[str]]:
    """The fields that differ, but for those that a missing identity takes along."""
    found: dict[Reason, list[str]] = {}
    for field in _differing(ours, theirs):
        if field in ("tokenizer.complete", "tokenizer.encoding"):
            continue  # not identified: `_incomplete` tells
        found.setdefault(_reason(field), []).append(field)
    return found


def _differing(
    ours: Mapping[Any, Any], theirs: Mapping[Any, Any], within: str = ""
) -> Iterator[str]:
    """The paths of what differs; no deeper than ours is, whatever theirs is."""
    for name in (*ours, *(name for name in theirs if name not in ours)):
        mine, other = ours.get(name, _ABSENT), theirs.get(name, _ABSENT)
        if isinstance(mine, Mapping) and isinstance(other, Mapping):
            yield from _differing(mine, other, f"{within}{name}.")
        elif type(mine) is not type(other) or mine != other:
            yield f"{within}{name}"


_ABSENT: Final = object()


def _reason(field: str) -> Reason:
    while field:
        if field in FIELDS:
            return FIELDS[field]
        field = field.rpartition(".")[0]
    return UNKNOWN_FIELD


def _incomplete(
    ours: Fingerprint, theirs: Mapping[Any, Any], compared: Mapping[Any, Any]
) -> str | None:
    """What is missing for equal digests to mean equal ids."""
    if not _identified(ours.compared):
        return "this gateway cannot fully identify its own tokenizer"
    if not _identified(compared):
        return "it does not fully identify its tokenizer"
    if not isinstance(theirs.get("digest"), str) or ours.digest is None:
        return "there is no digest"
    return None


def _identified(compared: Mapping[Any, Any]) -> bool:
    """Harmony is identified by its release, a tokenizer by all that it encodes with."""
    if compared.get("use_harmony") is True:
        harmony = compared.get("harmony")
        return isinstance(harmony, Mapping) and isinstance(harmony.get("version"), str)
    tokenizer = compared.get("tokenizer")
    return (
        isinstance(tokenizer, Mapping)
        and tokenizer.get("complete") is True
        and isinstance(tokenizer.get("encoding"), Mapping)
    )


def _listed(
    fields: list[str], ours: Mapping[str, Any], theirs: Mapping[Any, Any]
) -> str:
    """The fields, with their values where these are words and no hashes."""
    shown = [_shown(field, ours, theirs) for field in fields[:SHOWN]]
    if len(fields) > SHOWN:
        shown.append(f"{len(fields) - SHOWN} more")
    return ", ".join(shown)


def _shown(field: str, ours: Mapping[str, Any], theirs: Mapping[Any, Any]) -> str:
    name = _clipped(field)
    if field.endswith("sha256") or field.startswith("templates"):
        return name
    return f"{name} {_value(field, theirs)} (here {_value(field, ours)})"


def _value(field: str, compared: Mapping[Any, Any]) -> str:
    found: object = compared
    for name in field.split("."):
        found = found.get(name, _ABSENT) if isinstance(found, Mapping) else _ABSENT
    if found is _ABSENT:
        return "absent"
    if found is None or isinstance(found, bool | int | float | str):
        return _clipped(str(found))
    return "other"


def _clipped(text: str) -> str:
    """A worker's text, fit for one line of a log."""
    printable = "".join(c if c.isprintable() else "?" for c in text[:SHOWN_CHARACTERS])
    return printable + "..." * (len(text) > SHOWN_CHARACTERS)
