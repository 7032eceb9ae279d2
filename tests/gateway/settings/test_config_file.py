"""The configuration file: same names, same validation, between the other sources."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import main
from gateway.settings.config import Config
from gateway.settings.options import MASK, add_arguments, options_of
from gateway.settings.reading import read, said
from gateway.settings.render_config import RenderConfig
from gateway.settings.shown import page
from tests.gateway.command import refused

FILE = """
workers = ["http://w1:8000", "w2"]
port = 9090
policy = "round_robin"
drain-delay = 0.5
probe = true
max_body = "4MiB"
worker-api-key = "secret-of-workers"

[kv-events]
"w1:8000" = "tcp://w1:5557"
"w1:8000#1" = "tcp://w1:5558"

[default-chat-template-kwargs]
enable_thinking = false
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a value of each kind."""
    path = tmp_path / "gateway.toml"
    path.write_text(FILE)
    return path


def arguments(config: type[Any], *words: str) -> argparse.Namespace:
    """A command line, parsed."""
    parser = argparse.ArgumentParser()
    add_arguments(parser, config)
    return parser.parse_args(words)


def test_a_file(path: Path) -> None:
    """Every kind of value; lists and tables where an option can be given repeatedly."""
    config = read(Config, arguments(Config, "--config", str(path)), {})
    assert config.workers == (("http://w1:8000",), ("http://w2:8000",))
    assert config.port == 9090
    assert config.policy == "round_robin"
    assert config.drain_delay == 0.5
    assert config.probe is True
    assert config.max_body == 4 * 1024 * 1024
    assert [(e.url, e.rank, e.endpoint) for e in config.kv_events] == [
        ("http://w1:8000", 0, "tcp://w1:5557"),
        ("http://w1:8000", 1, "tcp://w1:5558"),
    ]
    assert config.default_chat_template_kwargs == {"enable_thinking": False}


def test_who_wins(path: Path) -> None:
    """The command line, then the environment, then the file, then the default."""
    variables = {
        "KV_GATEWAY_CONFIG": str(path),
        "KV_GATEWAY_PORT": "9091",
        "KV_GATEWAY_POLICY": "random",
    }
    config = read(Config, arguments(Config, "--port", "9092", "--no-probe"), variables)
    assert (config.port, config.policy) == (9092, "random")
    assert (config.probe, config.drain_delay) == (False, 0.5)
    assert config.drain_timeout == Config().drain_timeout


def test_what_is_shown_is_a_file(path: Path, tmp_path: Path) -> None:
    """The page, read as a file, is the same configuration but for the masked keys."""
    words = arguments(Config, "--config", str(path), "--admin-key", "very-secret")
    shown = page(said(Config, words, {}))
    assert "secret-of" not in shown
    assert "very-secret" not in shown
    assert shown.count(MASK) == 2
    again = tmp_path / "again.toml"
    again.write_text(shown)
    config = read(Config, arguments(Config, "--config", str(again)), {})
    keys = {"config", "admin_key", "worker_api_key"}
    first = read(Config, words, {})
    for option in options_of(Config):
        if option.name not in keys:
            assert getattr(config, option.name) == getattr(first, option.name)


def test_sources_are_named(path: Path) -> None:
    """Each value has the flag, the variable or the file behind it; the rest is told."""
    words = arguments(Config, "--config", str(path), "--host", "127.0.0.1")
    lines = page(said(Config, words, {"KV_GATEWAY_PORT": "1"})).splitlines()
    by_key = {line.partition(" ")[0]: line for line in lines}
    assert by_key["host"].endswith("# --host")
    assert by_key["port"].endswith("# KV_GATEWAY_PORT")
    assert by_key["policy"].endswith(f"# {path}")
    assert "# suspect-ttl: 600" in lines
    assert len([line for line in lines if line]) == len(list(options_of(Config)))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("nonsense = 1", "there is no option 'nonsense'"),
        ("config = 'other.toml'", "there is no option 'config'"),
        ("api-key = 'k'", "there is no option 'api-key'"),
        ("port = 'http'", "port 'http': is no port"),
        ("port = true", "port 'true': is no port"),
        ("port = [1]", "port is neither"),
        ("policy = 'best'", "policy 'best'"),
        ("probe = 'perhaps'", "probe 'perhaps': is neither true nor false"),
        ("workers = [['w1']]", "workers is neither"),
        ("workers = ['ftp://w1']", "workers 'ftp://w1'"),
        ("drain-delay = 1979-05-27", "drain-delay is neither"),
        ("kv-events = {w1 = 3}", "kv-events 'w1=3'"),
        ("max-body = '1MiB'\nmax_body = '2MiB'", "max_body is there twice"),
        ("port", "is no TOML"),
        ("port = 1\nport = 2", "is no TOML"),
        ("\xff", "is no TOML"),
    ],
)
def test_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, wrong: str
) -> None:
    """One line that names the file and the key, status 2; for each command alike."""
    path = tmp_path / "gateway.toml"
    path.write_text(text, encoding="latin-1")
    assert f"{path}: {wrong}" in refused(capsys, "config", "--config", str(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = 80", "--workers URL[,URL...] is missing"),
        ("workers = 'w1'\nprocesses = 2", "needs --admin-port"),
        ("workers = 'w1'\nport = 90\nadmin-port = 90", "--admin-port 90 is the port"),
        ("workers = 'w1'\nkv-events = {w2 = 'tcp://w2:1'}", "--kv-events names"),
        ("workers = 'w1'\nworker-api = {w2 = 'chat'}", "--worker-api names"),
        ("workers = 'w1'\ncache-per-client = true", "without --api-keys-file"),
        ("workers = 'w1'\ntls-key = 'key.pem'", "need --tls-cert"),
        ("workers = 'w1'\nworker-key = 'key.pem'", "needs --worker-cert"),
    ],
)
def test_options_that_do_not_fit_together(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: str
) -> None:
    """`config` finds what `serve` would refuse; `--show` shows it nevertheless."""
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    assert said in refused(capsys, "config", "--config", str(path))
    assert said in refused(capsys, "--config", str(path))
    assert main(["config", "--show", "--config", str(path)]) == 0


def test_a_render_server_needs_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the other command, too."""
    assert "--model DIR_OR_ID is missing" in refused(capsys, "config", "render")


def test_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """So is a file that is not there, or far too large."""
    line = refused(capsys, "--config", str(tmp_path / "none.toml"))
    assert "none.toml: No such file" in line
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (1024 * 1024 + 1))
    assert "has more than" in refused(capsys, "render", "--config", str(large))


def test_of_the_render_server(tmp_path: Path) -> None:
    """It has options of its own, and a file of its own."""
    path = tmp_path / "render.toml"
    path.write_text("model = 'm'\nserved-model-name = ['a', 'b']\n")
    config = read(RenderConfig, arguments(RenderConfig, "--config", str(path)), {})
    assert config.model == "m"
    assert config.served_model_name == ("a", "b")


def test_the_render_server_s_is_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """By the name of the command; the options are that one's, no others."""
    path = tmp_path / "render.toml"
    path.write_text("model = 'm'\napi-key = 'hidden'\n")
    assert main(["config", "render", "--show", "--config", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith('model = "m"')
    assert "hidden" not in printed
    assert "# port: 8100" in printed
    assert "# admin-port" not in printed
    assert main(["config", "serve", "--show", "--workers", "w1"]) == 0
    assert capsys.readouterr().out.startswith('workers = ["w1"]')
    assert "choose from" in refused(capsys, "config", "nonsense")
