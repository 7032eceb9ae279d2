"""The fingerprint of a loaded model: computed in a child process, or found in a cache.

What the child tells of a model's files is kept by their hash. What depends on options
(the server's template, the parsers) is added here. Blocking: callers have threads.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from render.fingerprint import VERSION, Difference, Fingerprint, digest, sha256_json
from render.fingerprint_cache import FingerprintCache, user_cache_dir
from render.fingerprint_child import Deadline, NoFingerprint, run_child
from render.model import Model
from render.renderer import Renderer

TIMEOUT_S = 120.0
RECIPE = 1
"""Of what is kept; another number, and nothing kept before is found."""
HASHED = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".vocab", ".bpe")
"""Files that a tokenizer or its templates may be made of; not the weights."""
LIBRARIES = (
    "transformers", "tokenizers", "sentencepiece", "tiktoken", "protobuf", "torch",
    "torchvision", "pillow",
)  # fmt: skip
"""What may change how transformers reads the files."""
EXTENSIONS = {"kimi_k3": "KimiK3ServingExtension"}
"""Model types that TensorRT-LLM serves by code of their own, and its class."""
CLOCK = "strftime_now"
"""The only way to the date that a template has."""
DATED = "its prompts have the date, and no fingerprint tells of a worker's clock"
HARMONY = "gpt_oss"
"""The model type whose prompts openai-harmony makes, without template or tokenizer."""
Child = Callable[[Path, Path, Deadline], dict[str, Any]]
"""Tells what transformers makes of a model's directory and of its tokenizer's."""


class Identity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the child process tells of a model's files."""

    processor_template: str | None
    tokenizer_template: str | None
    tokenizer: dict[str, Any]
    libraries: dict[str, str]
    differing_text: str | None


def compute(
    renderer: Renderer,
    *,
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
    deadline: Deadline | None = None,
    cache: FingerprintCache | None = None,
    child: Child = run_child,
) -> Fingerprint:
    """The fingerprint of what a renderer renders with; seconds if it is not cached.

    The parsers are only told along. Raises NoFingerprint.
    """
    model = renderer.model
    info = _info(renderer, tool_parser, reasoning_parser)
    if model.model_type == HARMONY:
        compared = {**_common(model), "harmony": _harmony()}
        return _fingerprint(compared, info, Difference("clock", DATED))
    identity = identify(
        model,
        deadline=deadline or Deadline(TIMEOUT_S),
        cache=cache or FingerprintCache(user_cache_dir() / "fingerprints"),
        child=child,
    )
    compared = {
        **_common(model),
        "custom_tokenizer": None,
        "input_processor": "default",
        "templates": {
            "server": sha256_json(renderer.server_template),
            "processor": identity.processor_template,
            "tokenizer": identity.tokenizer_template,
        },
        "tokenizer": identity.tokenizer,
    }
    return _fingerprint(compared, info | identity.libraries, _unfit(renderer, identity))


def _common(model: Model) -> dict[str, Any]:
    return {
        "version": VERSION,
        "model_type": model.model_type,
        "extension": EXTENSIONS.get(model.model_type or "", "ServingExtension"),
        "extension_render_version": 1,
        "use_harmony": model.model_type == HARMONY,
    }


def _fingerprint(
    compared: dict[str, Any], info: dict[str, Any], unfit: Difference | None = None
) -> Fingerprint:
    told = info | {"unfit": unfit.detail if unfit else None}
    return Fingerprint(
        digest=digest(compared), compared=compared, info=told, unfit=unfit
    )


def _harmony() -> dict[str, Any]:
    package = "openai-harmony"
    return {
        "encoding": "HARMONY_GPT_OSS",
        "package": package,
        "version": installed(package),
    }


def installed(package: str) -> str | None:
    """The version of an installed package; it is not imported."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _info(
    renderer: Renderer, tool_parser: str | None, reasoning_parser: str | None
) -> dict[str, Any]:
    """The parsers, as TensorRT-LLM tells them, and what its recipe forgets."""
    return {
        "tool_parser": tool_parser,
        "reasoning_parser": reasoning_parser,
        "profile": renderer.profile,
        "switches": renderer.switches,
        "jinja2": installed("jinja2"),
        "encoder": renderer.encoder_name,
    }


def _unfit(renderer: Renderer, identity: Identity) -> Difference | None:
    """Why an equal digest would not prove our ids: transformers reads the files anew.

    Its class of a tokenizer may not do what tokenizer.json says: we do what that says.
    """
    model = renderer.model
    if renderer.default_chat_template_kwargs:
        return _untold("no fingerprint tells --default-chat-template-kwargs")
    if identity.differing_text is not None:
        return _untold(
            "transformers does not encode as tokenizer.json says, for one: "
            f"{identity.differing_text[:40]!r}"
        )
    ours: object = model.processor_template
    if ours is None:
        named = dict(model.tokenizer_templates)
        ours = named.get("default") if named.keys() <= {"default"} else named
    theirs = identity.processor_template or identity.tokenizer_template
    if renderer.server_template is None and theirs != sha256_json(ours):
        return _untold("transformers finds another chat template")
    return Difference("clock", DATED) if _reads_clock(renderer) else None


def _untold(detail: str) -> Difference:
    return Difference("not_in_fingerprint", detail)


def _reads_clock(renderer: Renderer) -> bool:
    """Whether a template that may be used asks for the date."""
    model, given = renderer.model, renderer.server_template
    named = (model.processor_template, *model.tokenizer_templates.values())
    sources = named if given is None else (given,)
    return any(CLOCK in source for source in sources if source is not None)


def identify(
    model: Model, *, deadline: Deadline, cache: FingerprintCache, child: Child
) -> Identity:
    """What the child tells of a model's files, or told before; raises NoFingerprint."""
    key = _key(model)
    if (kept := _read(cache.get(key))) is not None:
        return kept
    with cache.alone(deadline.passed):
        if (kept := _read(cache.get(key))) is not None:
            return kept
        told = child(model.path, model.tokenizer_file.parent, deadline)
        identity = _read(told)
        if identity is None:
            raise NoFingerprint("the process told something else")
        if _key(model) == key:  # the files are still those it read
            cache.put(key, told)
    return identity


def _read(told: Mapping[str, Any] | None) -> Identity | None:
    if told is None:
        return None
    try:
        return msgspec.convert(told, Identity)
    except msgspec.ValidationError:
        return None


def _key(model: Model) -> str:
    """A hash of the files, and of what reads them; raises NoFingerprint."""
    found = hashlib.sha256()
    libraries = [installed(name) for name in LIBRARIES]
    found.update(json.dumps([RECIPE, sys.version, *libraries]).encode())
    try:
        for directory in (model.path, model.tokenizer_file.parent):
            for file in _files(directory):
                with file.open("rb") as content:
                    hashed = hashlib.file_digest(content, "sha256").hexdigest()
                name = str(file.relative_to(directory))
                found.update(json.dumps([name, hashed]).encode())
    except OSError as error:
        raise NoFingerprint(f"cannot read {model.path}: {error}") from error
    return found.hexdigest()


def _files(directory: Path) -> Iterator[Path]:
    templates = directory / "additional_chat_templates"
    for file in sorted([*directory.iterdir(), *templates.glob("*.jinja")]):
        if file.suffix in HASHED and file.is_file():
            yield file
