"""One declaration makes the flag, the variable, the help and the README's row."""

import argparse
from typing import Annotated, Literal

import msgspec
import pytest

from gateway.errors import ConfigError
from gateway.settings.config import Config
from gateway.settings.options import (
    MIB,
    add_arguments,
    markdown_table,
    option,
    options_of,
)
from gateway.settings.reading import read, unknown_variables
from gateway.settings.render_config import RenderConfig


class Small(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration with an option of each kind."""

    name: Annotated[str | None, option("what it is called", metavar="NAME")] = None
    count: Annotated[int, option("how many; 100 % is fine")] = 3
    share: Annotated[float, option("how much")] = 0.5
    mode: Annotated[Literal["a", "b"], option("which")] = "a"
    loud: Annotated[bool, option("tell everybody")] = False
    place: Annotated[tuple[str, ...], option("where; repeatable")] = ()
    room: Annotated[int, option("bytes")] = 4 * MIB


def parse(*words: str, **environment: str) -> Small:
    """The record of a command line and an environment."""
    parser = argparse.ArgumentParser()
    add_arguments(parser, Small)
    variables = {f"KV_GATEWAY_{k.upper()}": v for k, v in environment.items()}
    return read(Small, parser.parse_args(words), variables)


def test_defaults() -> None:
    """Nothing said, nothing changed."""
    assert parse() == Small()


def test_flags() -> None:
    """Each kind takes its value."""
    words = ["--name", "x", "--count", "7", "--share", "1", "--mode", "b", "--loud",
             "--place", "here", "--place", "there"]  # fmt: skip
    given = Small(
        name="x", count=7, share=1.0, mode="b", loud=True, place=("here", "there")
    )
    assert parse(*words) == given


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("YES", True), ("off", False), ("0", False)]
)
def test_booleans_of_the_environment(text: str, value: bool) -> None:
    """Common words for yes and no."""
    assert parse(loud=text).loud is value
    assert parse("--no-loud", loud=text).loud is False


def test_empty_variables_say_nothing() -> None:
    """A variable set to nothing leaves the default."""
    assert parse(count="", name=" ", place="") == Small()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"count": "x"}, "KV_GATEWAY_COUNT 'x'"),
        ({"loud": "perhaps"}, "KV_GATEWAY_LOUD 'perhaps': is neither"),
        ({"mode": "c"}, "KV_GATEWAY_MODE 'c': is none of a, b"),
    ],
)
def test_bad_variables(variables: dict[str, str], said: str) -> None:
    """The variable is named, not the flag."""
    with pytest.raises(ConfigError) as error:
        parse(**variables)
    assert said in str(error.value)


def test_table() -> None:
    """A row per option: flag with its value's name or choices, default, help."""
    assert markdown_table(options_of(Small)).splitlines() == [
        "| option | default | what it does |",
        "|---|---|---|",
        "| `--name NAME` | none | what it is called |",
        "| `--count COUNT` | 3 | how many; 100 % is fine |",
        "| `--share SHARE` | 0.5 | how much |",
        "| `--mode a\\|b` | a | which |",
        "| `--loud` | off | tell everybody |",
        "| `--place PLACE` | none | where; repeatable |",
        "| `--room ROOM` | 4194304 (4 MiB) | bytes |",
    ]


def test_help_shows_percent_signs() -> None:
    """argparse does not trip over a % in a help text."""
    parser = argparse.ArgumentParser()
    add_arguments(parser, Small)
    assert "100 % is fine (default: 3)" in " ".join(parser.format_help().split())


def test_options_of_a_base_are_options() -> None:
    """They come after one's own, and a default may be one's own."""

    class Larger(Small, frozen=True, kw_only=True):
        size: Annotated[int, option("how large")] = 1

    names = [declared.name for declared in options_of(Larger)]
    assert names == ["size", *(declared.name for declared in options_of(Small))]


@pytest.mark.parametrize("config", [Config, RenderConfig])
def test_each_option_reads_its_own_default(config: type[msgspec.Struct]) -> None:
    """No default is refused by its own option."""
    for declared in options_of(config):
        plain = isinstance(declared.default, str | int | float)
        if plain and not isinstance(declared.default, bool):
            text = str(declared.default)
            assert declared.from_text(text) == declared.default


def test_variables_that_set_nothing() -> None:
    """A misspelt one is named; what Kubernetes sets for a service is none."""
    of_a_service = ("SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT_80_TCP_ADDR")
    ours = [f"KV_GATEWAY_{name}" for name in ("PROT", "COUNT", *of_a_service)]
    environment = dict.fromkeys((*ours, "HOME"), "1")
    assert unknown_variables((Small,), environment) == ["KV_GATEWAY_PROT"]
