"""Who says what an option is: command line, environment, configuration file, default.

The first of them that speaks wins. Each is read as text by the option itself, so that
all have the same names and the same validation.
"""

import argparse
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gateway.settings.config_file import NAME, read_file
from gateway.settings.options import ENVIRONMENT_PREFIX, Option, options_of

C = TypeVar("C", bound=msgspec.Struct)
FileTexts = Mapping[str, tuple[str, ...]]
OF_A_SERVICE = re.compile(r"SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP)")
"""What Kubernetes sets where a service is called kv-gateway, after the prefix."""
LINK = re.compile(r"(?:tcp|udp|sctp)://\S+:\d+")
"""And what it then sets KV_GATEWAY_PORT to: it is where others reach the service."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What is in force for one option, and who said so."""

    option: Option
    value: Any
    texts: tuple[str, ...] = ()
    """As it was said; of a default: nothing."""
    by: str | None = None
    """The flag, the variable or the file; None: nobody, it is the default."""


def read(
    config: type[C],
    arguments: argparse.Namespace,
    environment: Mapping[str, str] = os.environ,
) -> C:
    """The configuration. Raises ConfigError, one line naming the option and its value.

    A flag wins over a variable, that over the file, and all over the default.
    """
    everything = said(config, arguments, environment)
    return config(**{one.option.name: one.value for one in everything if one.by})


def said(
    config: type[msgspec.Struct],
    arguments: argparse.Namespace,
    environment: Mapping[str, str] = os.environ,
) -> list[Said]:
    """What is in force for each option, in the order of their declaration."""
    options = list(options_of(config))
    path: Path | None = None
    for option in options:
        if option.name == NAME:
            path = _one(option, arguments, environment, None, {}).value
    filed = {} if path is None else read_file(path, options)
    return [_one(option, arguments, environment, path, filed) for option in options]


def unknown_variables(
    configs: Iterable[type[msgspec.Struct]],
    environment: Mapping[str, str] = os.environ,
) -> list[str]:
    """Variables that look like options of ours, but set none: misspelt ones."""
    known = {option.variable for config in configs for option in options_of(config)}
    return [
        name
        for name in sorted(environment)
        if name.startswith(ENVIRONMENT_PREFIX)
        and name not in known
        and not OF_A_SERVICE.match(name.removeprefix(ENVIRONMENT_PREFIX))
    ]


def _one(
    option: Option,
    arguments: argparse.Namespace,
    environment: Mapping[str, str],
    path: Path | None,
    filed: FileTexts,
) -> Said:
    given = getattr(arguments, option.name, None)
    if given is not None:
        return _of_flag(option, given)
    text = environment.get(option.variable, "")
    if option.name == "port" and LINK.fullmatch(text.strip()):
        text = ""
    if text.strip():  # a variable set to nothing is as good as none
        texts = option.split(text) if option.repeatable else (text,)
        return _of_texts(option, texts, option.variable, option.variable)
    if option.name in filed:
        key = option.flag.removeprefix("--")
        return _of_texts(option, filed[option.name], str(path), f"{path}: {key}")
    return Said(option=option, value=option.default)


def _of_flag(option: Option, given: bool | str | list[str]) -> Said:
    if isinstance(given, bool):
        flag = option.flag if given else option.flag.replace("--", "--no-", 1)
        text = "true" if given else "false"
        return Said(option=option, value=given, texts=(text,), by=flag)
    texts = tuple(given) if isinstance(given, list) else (given,)
    return _of_texts(option, texts, option.flag, option.flag)


def _of_texts(option: Option, texts: tuple[str, ...], by: str, named: str) -> Said:
    """`named` is what an error calls the option."""
    values = tuple(option.from_text(text, said_by=named) for text in texts)
    value = values if option.repeatable else values[0]
    return Said(option=option, value=value, texts=texts, by=by)
