"""What is read from a model directory, and how a missing one is reported."""

import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from render import ModelNotFound, Renderer
from render.model import find_directory, load_model
from tests.render import models


def test_reads_configuration(tmp_path: Path) -> None:
    """Type, context length and special tokens, in their several spellings."""
    models.save(
        tmp_path,
        models.byte_level(),
        config={"model_type": "m", "text_config": {"max_position_embeddings": 77}},
        tokenizer_config={
            "bos_token": {"__type": "AddedToken", "content": "<s>"},
            "eos_token": "</s>",
            "pad_token": None,
            "image_token": "<img>",
            "add_bos_token": True,
            "extra_special_tokens": {"boi": "<boi>"},
            "added_tokens_decoder": {},
        },
        files={"special_tokens_map.json": '{"unk_token": "<unk>"}'},
    )
    model = load_model(tmp_path)
    assert (model.model_type, model.max_length) == ("m", 77)
    assert model.special_tokens == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "image_token": "<img>",
        "boi": "<boi>",
    }


def test_old_special_tokens_map(tmp_path: Path) -> None:
    """special_tokens_map.json counts where tokenizer_config.json lists no tokens."""
    models.save(
        tmp_path,
        models.byte_level(),
        tokenizer_config={"eos_token": "</s>"},
        files={"special_tokens_map.json": '{"bos_token": "<s>", "eos_token": "x"}'},
    )
    assert load_model(tmp_path).special_tokens == {
        "bos_token": "<s>",
        "eos_token": "</s>",
    }


def test_only_a_tokenizer(tmp_path: Path) -> None:
    """tokenizer.json alone is a model, without type, length or template."""
    models.byte_level().save(str(tmp_path / "tokenizer.json"))
    model = load_model(tmp_path)
    assert (model.model_type, model.max_length) == (None, None)
    assert model.tokenizer_templates == {}


def test_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub id is found in the local cache, at the commit its main branch names."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots" / ("a" * 40)
    models.save(snapshot, models.byte_level())
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    assert find_directory("org/name") == snapshot
    renderer = Renderer.load("org/name")
    assert renderer.model.name == "org/name"
    assert len(renderer.render_completion({"prompt": "hello"})[0]) > 0


@pytest.mark.parametrize(
    "name", ["org/none", "/no/such", "./no", "a/b/c", "", "x/", "a b"]
)
def test_missing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line names what was looked for, and where; nobody goes online."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFound) as caught:
        Renderer.load(name)
    message = str(caught.value)
    assert name.strip("./") in message
    assert "\n" not in message


def test_no_tokenizer(tmp_path: Path) -> None:
    """A directory without tokenizer.json says that this is what is missing."""
    with pytest.raises(ModelNotFound, match=rf"no tokenizer\.json in {tmp_path}"):
        Renderer.load(tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("tokenizer_config.json", "[" * 100_000),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", ""),
    ],
)
def test_broken_file(tmp_path: Path, file: str, content: str) -> None:
    """A file that cannot be read is named."""
    models.save(tmp_path, models.byte_level(), files={file: content})
    with pytest.raises(ModelNotFound, match=f"cannot read .*{file}"):
        Renderer.load(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"profile": "none"},
        {"encoder": "none"},
        {"chat_template_content_format": "none"},
    ],
)
def test_unknown_option(tmp_path: Path, options: dict[str, str]) -> None:
    """An unknown option value is an error at load."""
    models.save(tmp_path, models.byte_level())
    with pytest.raises(ModelNotFound, match="'none'"):
        Renderer.load(tmp_path, **options)  # type: ignore[arg-type]


def test_imports_nothing_heavy() -> None:
    """Neither transformers nor huggingface_hub is imported for a directory."""
    code = (
        "import sys, render; heavy = {'transformers', 'huggingface_hub', 'torch'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
