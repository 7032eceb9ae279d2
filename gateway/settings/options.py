"""How an option is declared, once.

A field of a frozen Struct, annotated with `option(...)`, is the only place where an
option exists: the argparse flag, the `KV_GATEWAY_*` variable, the key of the
configuration file, `--help` and the table of the README are made from it. It is no
configuration itself: see config.py; how it is read: see reading.py.
"""

import argparse
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, get_args, get_origin

import msgspec

from gateway.errors import ConfigError
from gateway.settings.values import secret

SHOWN = 100
"""Characters of a value that an error repeats."""
MASK = "********"
ENVIRONMENT_PREFIX = "KV_GATEWAY_"
ANNOTATIONS = "__annotations__"
SECONDS = 1.0
MINUTES = 60 * SECONDS
MIB = 1024 * 1024


def option(
    help_text: str,
    *,
    metavar: str | None = None,
    parse: Callable[[str], Any] | None = None,
    shown_default: str | None = None,
) -> msgspec.Meta:
    """Metadata of one option: its help, and how text becomes a value."""
    extra = {"metavar": metavar, "parse": parse, "shown_default": shown_default}
    return msgspec.Meta(description=help_text, extra=extra)


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One declared option, read off a Struct's field."""

    name: str
    """The field's name; the flag is `--name` with dashes."""
    type: Any
    default: Any
    help: str
    metavar: str | None
    parse: Callable[[str], Any] | None
    shown_default: str | None

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def repeatable(self) -> bool:
        return get_origin(self.type) is tuple

    @property
    def choices(self) -> tuple[str, ...] | None:
        return get_args(self.type) if get_origin(self.type) is Literal else None

    def from_text(self, text: str, *, said_by: str | None = None) -> Any:
        """The value of one piece of text; ConfigError if it is none."""
        try:
            return self._convert(text)
        except ValueError as error:
            told = f"{said_by or self.flag} {self._shown(text)!r}: {error}"
            raise ConfigError(told) from None

    def _shown(self, text: str) -> str:
        """The text as an error repeats it: of a key with a mistake in it, nothing."""
        if self.is_secret and text.strip():
            return MASK
        return text if len(text) <= SHOWN else text[:SHOWN] + "..."

    def _convert(self, text: str) -> Any:
        if self.parse is not None:
            return self.parse(text)
        if self.choices is not None:
            if text not in self.choices:
                raise ValueError(f"is none of {', '.join(self.choices)}")
            return text
        kind = _scalar(self.type)
        if kind is bool:
            return _boolean(text)
        return kind(text)

    def split(self, text: str) -> tuple[str, ...]:
        """One text for several values, as environment variables have it: by commas."""
        return tuple(piece.strip() for piece in text.split(",") if piece.strip())

    @property
    def is_secret(self) -> bool:
        """Whether a value is a key, which is shown to nobody."""
        return self.parse is secret

    @property
    def is_number(self) -> bool:
        """Whether a value is a number, or true or false: what needs no quotes."""
        return _scalar(self.type) in (int, float, bool)

    def default_text(self) -> str:
        """The default as `--help` and the README show it."""
        if self.shown_default is not None:
            return self.shown_default
        if self.default in (None, ()):
            return "none"
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        if isinstance(self.default, int) and self.default and self.default % MIB == 0:
            return f"{self.default} ({self.default // MIB} MiB)"
        return f"{self.default:g}" if _is_float(self.default) else str(self.default)


def _is_float(value: object) -> bool:
    return isinstance(value, float)


def _boolean(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True}
    known |= {"0": False, "false": False, "no": False, "off": False}
    if text.lower() not in known:
        raise ValueError("is neither true nor false")
    return known[text.lower()]


def _scalar(kind: Any) -> Any:
    """The plain type behind `X | None` and `tuple[X, ...]`."""
    if get_origin(kind) in (types.UnionType, typing.Union):
        return next(arg for arg in get_args(kind) if arg is not type(None))
    if get_origin(kind) is tuple:
        return get_args(kind)[0]
    return kind


def options_of(config: type[msgspec.Struct]) -> Iterator[Option]:
    """Every declared option of a configuration: its own, then those of its bases."""
    hints = typing.get_type_hints(config, include_extras=True)
    fields = {field.name: field for field in msgspec.structs.fields(config)}
    declared = [
        name for cls in config.__mro__ for name in vars(cls).get(ANNOTATIONS, ())
    ]
    for name in dict.fromkeys(declared):
        field, annotation = fields[name], hints[name]
        kind, meta = get_args(annotation)
        extra = meta.extra or {}
        yield Option(
            name=field.name,
            type=kind,
            default=field.default,
            help=meta.description or "",
            metavar=extra["metavar"],
            parse=extra["parse"],
            shown_default=extra["shown_default"],
        )


def add_arguments(
    parser: argparse.ArgumentParser, config: type[msgspec.Struct]
) -> None:
    """Give the parser a flag for each option of the configuration."""
    for declared in options_of(config):
        text = f"{declared.help} (default: {declared.default_text()})"
        text = text.replace("%", "%%")
        if declared.type is bool:
            parser.add_argument(
                declared.flag,
                dest=declared.name,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=text,
            )
            continue
        parser.add_argument(
            declared.flag,
            dest=declared.name,
            action="append" if declared.repeatable else "store",
            metavar=_metavar(declared),
            help=text,
        )


def markdown_table(options: Iterable[Option]) -> str:
    """An option table of the README."""
    rows = ["| option | default | what it does |", "|---|---|---|"]
    for declared in options:
        metavar = "" if declared.type is bool else f" {_metavar(declared)}"
        flag = f"`{declared.flag}{metavar}`".replace("|", "\\|")
        rows.append(f"| {flag} | {declared.default_text()} | {declared.help} |")
    return "\n".join(rows) + "\n"


def _metavar(declared: Option) -> str:
    if declared.choices is not None:
        return "|".join(declared.choices)
    return declared.metavar or declared.name.upper()
