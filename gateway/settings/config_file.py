"""The configuration file: options under their own names, in TOML.

It is read as text is read on the command line: what is valid there is valid here. Which
options there are is declared elsewhere (`options.py`), who wins is in `reading.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gateway.errors import ConfigError
from gateway.files import content
from gateway.settings.options import Option

MOST_BYTES = 1024 * 1024
NAME = "config"
"""The option that names the file; it has no place in it."""


def read_file(path: Path, options: Iterable[Option]) -> dict[str, tuple[str, ...]]:
    """The texts that a file gives to options, by field name.

    Raises ConfigError, one line that names the file and the key.
    """
    known = {option.name: option for option in options if option.name != NAME}
    texts: dict[str, tuple[str, ...]] = {}
    for key, value in _decoded(path).items():
        option = known.get(key.replace("-", "_"))
        if option is None:
            raise ConfigError(f"{path}: there is no option {key[:100]!r}")
        if option.name in texts:
            raise ConfigError(f"{path}: {key} is there twice, with - and with _")
        try:
            texts[option.name] = tuple(_texts(option, value))
        except ValueError as error:
            raise ConfigError(f"{path}: {key} {error}") from None
    return texts


def _decoded(path: Path) -> dict[str, Any]:
    try:
        text = content(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    try:
        return msgspec.toml.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is no TOML: {error}") from None


def _texts(option: Option, value: object) -> Iterator[str]:
    """The value as it would be typed: one text, or one for each time it is given."""
    if not option.repeatable:
        yield _json(value) if isinstance(value, Mapping) else _text(value)
    elif isinstance(value, Mapping):
        for name, said in value.items():
            yield f"{name}={_text(said)}"
    elif isinstance(value, list):
        for said in value:
            yield _text(said)
    else:
        yield _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError("is neither text nor number, nor true or false")


def _json(value: Mapping[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
