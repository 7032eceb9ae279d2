"""What the documents tell people to type works, and what they say of options is so."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway import handlers
from gateway.access.key_command import KeyConfig
from gateway.admin import own_routes
from gateway.admin.page import routes
from gateway.cli import SIMULATED, parser
from gateway.endpoints import render_endpoints, render_server
from gateway.settings.config import Config
from gateway.settings.options import options_of
from gateway.settings.reading import read
from gateway.settings.render_config import RenderConfig
from gateway.workers import worker_routes

ROOT = Path(__file__).parent.parent
ROOT_DOCUMENTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
DOCUMENTS = [*(ROOT / name for name in ROOT_DOCUMENTS), *ROOT.glob("docs/*.md")]


def _commands() -> Iterator[tuple[str, str]]:
    """(document, command) of code blocks and of `code` in text."""
    for document in DOCUMENTS:
        text = document.read_text().replace("\\\n", " ")
        blocks = re.findall(r"^(?:    |\$ )(.+)$", text, re.MULTILINE)
        fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        inline = re.findall(r"`([^`\n]+)`", text)
        for line in [*blocks, *"\n".join(fenced).splitlines(), *inline]:
            for command in re.split(r"&&|\|\s", line):
                yield document.name, command.strip().removeprefix("$ ")


COMMANDS = sorted(set(_commands()))


def commands(*programs: str) -> list[tuple[str, str]]:
    """The documents' commands that begin with one of these words."""
    return [
        (d, c) for d, c in COMMANDS if c.startswith(tuple(p + " " for p in programs))
    ]


def test_every_option_is_in_the_readme() -> None:
    """By its flag."""
    text = (ROOT / "README.md").read_text()
    for config in (Config, RenderConfig):
        assert all(f"`{declared.flag}" in text for declared in options_of(config))


def test_the_readme_opens_with_the_two_commands() -> None:
    """What to type first is on the first screen."""
    opening = (ROOT / "README.md").read_text().splitlines()[:12]
    assert "    make demo" in opening
    assert "    make test" in opening


@pytest.fixture
def configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that commands name is where they are typed."""
    text = (ROOT / "docs" / "scaling.md").read_text()
    (block,) = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "gateway.toml").write_text(block)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("configuration_file")
@pytest.mark.parametrize(("document", "command"), commands("kv-gateway"))
def test_kv_gateway_commands(document: str, command: str) -> None:
    """Every command line of ours is taken by the parser and the configuration."""
    words = shlex.split(command.split("   ")[0].split(" >> ")[0])[1:]
    if words[0].startswith("-"):
        words.insert(0, "serve")
    if len(words) == 1 or {"...", "NAME", "COMMAND"} & set(words):
        pytest.skip("a form, not a command")
    arguments = parser(words[0]).parse_args(words)
    if words[0] == "render":
        assert read(RenderConfig, arguments, {}).model
    elif words[0] == "key":
        assert read(KeyConfig, arguments, {}).name
    elif words[0] == "config":
        assert arguments.show
    elif words[0] not in SIMULATED:
        assert read(Config, arguments, {}).workers


@pytest.mark.parametrize(("document", "command"), commands("make"))
def test_make_targets(document: str, command: str) -> None:
    """Every make target that is named is there."""
    makefile = (ROOT / "Makefile").read_text()
    for word in shlex.split(command.split("   ")[0])[1:]:
        if "=" not in word:
            assert re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE), word


def test_options_named_in_text() -> None:
    """Every `--option` in the documents is one of ours, or the engine's."""
    others = {"--enable-prompt-tokens-details", "--kv-events-config"}  # vLLM's
    ours = {
        flag for flags in map(_flags, ("serve", "render", *SIMULATED)) for flag in flags
    }
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        named = set(re.findall(r"`(--[a-z][a-z0-9-]+)", document.read_text()))
        assert named - ours - others == set()


def _flags(command: str) -> set[str]:
    top = parser(command)
    (commands_of,) = [
        action for action in top._actions
        if isinstance(action, argparse._SubParsersAction)
    ]  # fmt: skip
    sub = commands_of.choices[command]
    return {flag for action in sub._actions for flag in action.option_strings}


def test_links_lead_somewhere() -> None:
    """Every relative link of a document is a file."""
    for document in DOCUMENTS:
        for link in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
            if not urlsplit(link).scheme:
                assert (document.parent / link).exists(), f"{document.name}: {link}"


def test_named_routes_are_there() -> None:
    """The routes that the README lists are routes of ours."""
    ours = (handlers, own_routes, worker_routes, routes)
    modules = (*ours, render_endpoints, render_server)
    source = "".join(Path(str(module.__file__)).read_text() for module in modules)
    text = (ROOT / "README.md").read_text()
    for path in re.findall(r"`(?:GET|POST) (/\S+?)`", text):
        assert f'"{path}"' in source, path
