"""`kv-gateway key`: a record for the file, a key for the client."""

import io
from pathlib import Path

import pytest

from gateway.access.api_keys import read_keys
from gateway.access.keyring import Keyring
from gateway.cli import main
from tests.gateway.command import refused


def test_a_record_and_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed, appended to a file, opens by the key that was told."""
    path = tmp_path / "keys.toml"
    keys = []
    for name in ("a", "b"):
        words = ["key", "--name", name, "--requests-per-minute", "60"]
        assert main([*words, "--max-inflight", "4"]) == 0
        output = capsys.readouterr()
        with path.open("a") as file:
            file.write(output.out)
        keys.append(output.err.split()[-1])
        assert keys[-1] not in output.out
    ring = Keyring(read_keys(path))
    for name, key in zip("ab", keys, strict=True):
        client = ring.holder(key)
        assert client is not None
        assert client.name == name
        assert client.limits.requests_per_minute == 60
        assert client.limits.max_inflight == 4


def test_a_key_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """From standard input, so that it stands on no command line; it is not printed."""
    own = "a-key-that-was-made-elsewhere"
    monkeypatch.setattr("sys.stdin", io.StringIO(own + "\n"))
    assert main(["key", "--name", "a", "--stdin"]) == 0
    output = capsys.readouterr()
    assert own not in output.out + output.err
    path = tmp_path / "keys.toml"
    path.write_text(output.out)
    assert Keyring(read_keys(path)).holder(own) is not None


def test_what_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that is none, a key that can be guessed, no name."""
    assert "--name 'a b'" in refused(capsys, "key", "--name", "a b")
    assert "--name NAME is missing" in refused(capsys, "key")
    monkeypatch.setattr("sys.stdin", io.StringIO("hunter2\n"))
    said = refused(capsys, "key", "--name", "a", "--stdin")
    assert "24 characters" in said
    assert "hunter2" not in said


def test_files_with_mistakes_are_told_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, before a model is loaded or a port taken."""
    path = tmp_path / "keys.toml"
    serve = ("--workers", "w", "--render", "never")
    assert "No such file" in refused(capsys, *serve, "--api-keys-file", str(path))
    path.write_text("[[keys]]")
    said = refused(capsys, *serve, "--api-keys-file", str(path))
    assert "missing required field `name`" in said
    assert "--tls-cert" in refused(capsys, *serve, "--tls-cert", str(path))
    assert "--worker-ca" in refused(capsys, *serve, "--worker-ca", str(path))
    render = ("render", "--model", "none", "--tls-key", str(path))
    assert "need --tls-cert" in refused(capsys, *render)
    path.write_text("")
    replaced = ("--api-keys-file", str(path), "--worker-auth", "pass")
    assert "--worker-auth pass" in refused(capsys, *serve, *replaced)
