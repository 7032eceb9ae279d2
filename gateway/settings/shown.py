"""The page of `config --show`: what is in force, and where each value comes from.

In the form of a configuration file; defaults are comments in it, keys are masked.
"""

import json
import re
from collections.abc import Iterable

from gateway.settings.config_file import NAME
from gateway.settings.options import MASK
from gateway.settings.reading import Said

ALIGNED = 50
"""Characters of a line; what comes after those of longer ones is not in one column."""
PLAIN = re.compile(r"true|false|(0|-?[1-9][0-9]*)(\.[0-9]+)?")
"""Text that TOML takes without quotes."""


def page(everything: Iterable[Said]) -> str:
    """One line for each option: first what was said, then the defaults."""
    told = [one for one in everything if one.by is not None]
    rest = [one for one in everything if one.by is None]
    lines = [(_assignment(one), f"# {one.by}") for one in told]
    width = max((len(text) for text, _ in lines if len(text) <= ALIGNED), default=0)
    shown = [f"{text:{width}}  {by}" for text, by in lines]
    if shown and rest:
        shown.append("")
    return "\n".join([*shown, *map(_default, rest), ""])


def _assignment(one: Said) -> str:
    option = one.option
    texts = [MASK] * len(one.texts) if option.is_secret else one.texts
    values = [_toml(text, quoted=not option.is_number) for text in texts]
    value = f"[{', '.join(values)}]" if option.repeatable else values[0]
    # The file is named elsewhere, not in itself.
    return f"{'# ' if option.name == NAME else ''}{_key(one)} = {value}"


def _default(one: Said) -> str:
    return f"# {_key(one)}: {one.option.default_text()}"


def _key(one: Said) -> str:
    return one.option.flag.removeprefix("--")


def _toml(text: str, *, quoted: bool) -> str:
    plain = not quoted and PLAIN.fullmatch(text)
    return text if plain else json.dumps(text, ensure_ascii=False)
