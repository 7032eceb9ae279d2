"""A model directory as far as rendering needs it: configuration, templates, tokens.

Found by path, or by hub id in the local Hugging Face cache. Nothing is ever
downloaded, and no code of a model is ever run. Which template a request gets is
`template.py`'s business, and the tokenizer itself `encoder.py`'s.
"""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from render.errors import ModelNotFound

SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What a model directory holds.

    `name` is what was asked for, `max_length` the context length in tokens,
    `vocabulary_size` the number of ids the model itself knows; `tokenizer_path` is
    where its tokenizer is, None: with the model.
    `tokenizer_templates` are the chat templates by name ("default", "tool_use", ...);
    `processor_template` is that of a multimodal model's processor.
    `special_tokens` are the template variables `bos_token`, `eos_token` and so on;
    `files` the names of all files when it was read.
    """

    name: str
    path: Path
    model_type: str | None
    max_length: int | None
    special_tokens: Mapping[str, str]
    tokenizer_templates: Mapping[str, str]
    processor_template: str | None
    files: frozenset[str] = frozenset()
    vocabulary_size: int | None = None
    tokenizer_path: Path | None = None

    @property
    def tokenizer_file(self) -> Path:
        """The path of tokenizer.json."""
        return (self.tokenizer_path or self.path) / "tokenizer.json"

    def has_file(self, pattern: str) -> bool:
        """Whether a file matching the glob lies with the model or its tokenizer."""
        return any(fnmatchcase(name, pattern) for name in self.files)


def load_model(
    path_or_id: str | Path,
    *,
    tokenizer: str | Path | None = None,
    revision: str | None = None,
) -> Model:
    """Read the directory at a path, or of a hub id in the local cache.

    `tokenizer` is where tokenizer and templates are, if not there; `revision` is which
    one of a hub id's. Raises ModelNotFound.
    """
    path = find_directory(path_or_id, revision=revision)
    tokenizer_path = path
    if tokenizer is not None:
        tokenizer_path = find_directory(tokenizer, revision=revision)
    if not (tokenizer_path / "tokenizer.json").is_file():
        raise ModelNotFound(
            f"no tokenizer.json in {tokenizer_path}: only fast tokenizers can be loaded"
        )
    config = _read_json(path / "config.json")
    tokenizer_config = _read_json(tokenizer_path / "tokenizer_config.json")
    tokenizer_templates = _tokenizer_templates(tokenizer_path, tokenizer_config)
    processor_template = _processor_template(path)
    if processor_template is not None and not tokenizer_templates:
        tokenizer_templates = {"default": processor_template}
    if not any((path / name).is_file() for name in PROCESSOR_FILES):
        processor_template = None
    model_type = config.get("model_type")
    return Model(
        name=str(path_or_id),
        path=path,
        model_type=model_type if isinstance(model_type, str) else None,
        max_length=_size(config, "max_position_embeddings"),
        vocabulary_size=_size(config, "vocab_size"),
        special_tokens=_special_tokens(tokenizer_path, tokenizer_config),
        tokenizer_path=tokenizer_path,
        files=_names(path) | _names(tokenizer_path),
        tokenizer_templates=tokenizer_templates,
        processor_template=processor_template,
    )


def find_directory(path_or_id: str | Path, *, revision: str | None = None) -> Path:
    """The model's directory; raises ModelNotFound."""
    path = Path(path_or_id).expanduser()
    if path.is_dir():
        return path
    if isinstance(path_or_id, Path) or not _may_be_hub_id(path_or_id):
        raise ModelNotFound(f"no model directory {path.absolute()}")
    # Imported only here: most starts name a directory, and it is slow.
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    cache = constants.HF_HUB_CACHE
    try:
        found = snapshot_download(
            path_or_id, revision=revision, cache_dir=cache, local_files_only=True
        )
    except (HFValidationError, LocalEntryNotFoundError, OSError):
        which = path_or_id if revision is None else f"{path_or_id}@{revision}"
        raise ModelNotFound(
            f"no model {which!r}: neither a directory here "
            f"nor a model in the local cache {cache}"
        ) from None
    return Path(found)


def _may_be_hub_id(name: str) -> bool:
    return (
        not name.startswith(("/", ".", "~"))
        and name.count("/") <= 1
        and not name.endswith("/")
        and name != ""
    )


def _names(path: Path) -> frozenset[str]:
    try:
        return frozenset(entry.name for entry in path.iterdir())
    except OSError as error:
        raise ModelNotFound(f"cannot read {path}: {error}") from error


def _read_json(path: Path) -> dict[str, object]:
    """A JSON object; {} if there is no such file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelNotFound(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise ModelNotFound(f"cannot read {path}: not a JSON object")
    return content


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ModelNotFound(f"cannot read {path}: {error}") from error


def _tokenizer_templates(
    path: Path, tokenizer_config: Mapping[str, object]
) -> dict[str, str]:
    """By name; template files win over tokenizer_config.json, as in transformers."""
    templates = {}
    default = _read_text(path / "chat_template.jinja")
    if default is not None:
        templates["default"] = default
    for file in sorted((path / "additional_chat_templates").glob("*.jinja")):
        template = _read_text(file)
        if template is not None:
            templates[file.stem] = template
    return templates or _named_templates(tokenizer_config.get("chat_template"))


def _named_templates(configured: object) -> dict[str, str]:
    """`chat_template` of a configuration: a string, a list of named ones, a mapping."""
    if isinstance(configured, str):
        return {"default": configured}
    if isinstance(configured, list):
        pairs = [
            (entry.get("name"), entry.get("template"))
            for entry in configured
            if isinstance(entry, dict)
        ]
    elif isinstance(configured, dict):
        pairs = list(configured.items())
    else:
        return {}
    return {
        name: template
        for name, template in pairs
        if isinstance(name, str) and isinstance(template, str)
    }


def _processor_template(path: Path) -> str | None:
    """`chat_template.jinja`, else the older `chat_template.json`."""
    template = _read_text(path / "chat_template.jinja")
    if template is not None:
        return template
    configured = _read_json(path / "chat_template.json").get("chat_template")
    return _named_templates(configured).get("default")


def _special_tokens(
    path: Path, tokenizer_config: Mapping[str, object]
) -> dict[str, str]:
    """The tokens a template may name: the usual ones and the model's own `*_token`s."""
    configured: dict[str, object] = {}
    if "added_tokens_decoder" not in tokenizer_config:
        configured.update(_read_json(path / "special_tokens_map.json"))
    configured.update(tokenizer_config)
    extra = configured.get("extra_special_tokens")
    own = extra if isinstance(extra, dict) else {}
    tokens = {
        name: _token_text(value)
        for name, value in [*configured.items(), *own.items()]
        if name in SPECIAL_TOKENS or name in own or name.endswith("_token")
    }
    return {name: text for name, text in tokens.items() if text is not None}


def _token_text(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _size(config: Mapping[str, object], name: str) -> int | None:
    """A size in the configuration; multimodal models keep theirs with the text part."""
    nested = config.get("text_config")
    for part in (config, nested if isinstance(nested, dict) else {}):
        size = part.get(name)
        if isinstance(size, int) and size > 0:
            return size
    return None
