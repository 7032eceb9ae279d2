"""The recipe, against a second computation of it from TensorRT-LLM's own words."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, pre_tokenizers, processors

from kvindex.blocks import pack_ids
from render.fingerprint_child import OFFLINE
from render.fingerprint_process import differing_text, identity, tokenizer_fields
from tests.render.models import CHATML, byte_level, metaspace, save

HASHED = {
    "add_prefix_space", "add_bos_token", "add_eos_token", "legacy",
    "split_special_tokens", "do_lower_case", "strip_accents",
    "tokenize_chinese_chars",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the child is: transformers looks for nothing on the network."""
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)


def load(path: Path) -> Any:
    """The tokenizer as the engine loads it."""
    return from_pretrained(
        path, legacy=False, padding_side="left", truncation_side="left",
        use_fast=True, trust_remote_code=False,
    )  # fmt: skip


def from_pretrained(path: Path, **options: Any) -> Any:
    """As transformers loads it."""
    import transformers  # of all tests only a few need it, and it takes long

    tokenizer: Any = transformers.AutoTokenizer
    return tokenizer.from_pretrained(str(path), **options)


def sha(value: Any) -> str | None:
    """Of its JSON; null stays null."""
    if value is None:
        return None
    written = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(written.encode("utf-8")).hexdigest()


def expected(path: Path) -> dict[str, Any]:
    """The tokenizer's fields, computed here."""
    tokenizer = load(path)
    vocabulary = tokenizer.get_vocab()
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    backend.update(truncation=None, padding=None)
    added = [
        [number, repr(token), token.__dict__ and str(token.__dict__)]
        for number, token in tokenizer.added_tokens_decoder.items()
    ]
    options = tokenizer.init_kwargs
    fields = {
        "class": type(tokenizer).__module__ + "." + type(tokenizer).__qualname__,
        "vocab_size": len(vocabulary),
        "vocab_sha256": sha(sorted([token, n] for token, n in vocabulary.items())),
        "special_tokens_sha256": sha(tokenizer.special_tokens_map),
        "init_kwargs_sha256": sha({k: options[k] for k in HASHED & options.keys()}),
        "encoding": {"kind": "tokenizers", "sha256": sha(backend)},
        "complete": True,
    }
    if added:
        fields["added_tokens_sha256"] = sha(sorted(added))
    return fields


def test_a_trained_tokenizer(tmp_path: Path) -> None:
    """Every field; and the processor of a model for text only is its tokenizer."""
    added = AddedToken("<|x|>", lstrip=True, normalized=False)
    path = save(tmp_path, byte_level(specials=["<|im_end|>", added]))
    told = identity(str(path), str(path))
    assert told["tokenizer"] == expected(path)
    assert told["tokenizer_template"] == told["processor_template"] == sha(CHATML)
    assert told["differing_text"] is None
    assert told["libraries"].keys() == {"transformers", "tokenizers"}


@pytest.mark.timeout(180)
def test_the_built_in_model(model_dir: Path) -> None:
    """150,000 tokens, in a process of its own; nothing else is on its stdout."""
    command = [sys.executable, "-m", "render.fingerprint_process"]
    ended = subprocess.run(
        [*command, str(model_dir), str(model_dir)], check=True, capture_output=True
    )
    told = json.loads(ended.stdout)
    assert told["tokenizer"] == expected(model_dir)
    assert told["tokenizer"]["vocab_size"] == 151669
    config = json.loads((model_dir / "tokenizer_config.json").read_text())
    assert told["tokenizer_template"] == sha(config["chat_template"])
    assert told["processor_template"] == told["tokenizer_template"]
    assert told["differing_text"] is None


def test_how_the_engine_loads_it(tmp_path: Path) -> None:
    """`legacy=False` is among the hashed options: without it the hash is another."""
    path = save(tmp_path, byte_level())
    told = identity(str(path), str(path))["tokenizer"]
    assert told["init_kwargs_sha256"] == sha({"legacy": False})
    plain = from_pretrained(path)
    assert tokenizer_fields(plain)["init_kwargs_sha256"] == sha({})


def test_what_a_request_leaves_behind(tmp_path: Path) -> None:
    """Truncation and padding of the last request are no part of the tokenizer."""
    tokenizer = load(save(tmp_path, byte_level()))
    before = tokenizer_fields(tokenizer)
    tokenizer("some words and more", truncation=True, max_length=5)
    tokenizer.backend_tokenizer.enable_padding(length=7)
    assert '"max_length":5' in tokenizer.backend_tokenizer.to_str()
    assert tokenizer_fields(tokenizer)["encoding"] == before["encoding"]
    # The live tokenizer is left as it is.
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 5


def test_where_it_lies_does_not_matter(tmp_path: Path) -> None:
    """The same files in another directory: the same fields."""
    told = [
        identity(str(path), str(path))
        for path in (save(tmp_path / name, byte_level()) for name in ("a", "b"))
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize("what", ["merges", "token", "special", "template"])
def test_what_matters(tmp_path: Path, what: str) -> None:
    """Another tokenizer or template is told by the field it changes."""
    path = save(tmp_path / "a", byte_level())
    first = identity(str(path), str(path))
    other = save(tmp_path / "b", byte_level())
    file = other / "tokenizer.json"
    content = json.loads(file.read_text())
    if what == "merges":
        content["model"]["merges"][:2] = reversed(content["model"]["merges"][:2])
    elif what == "token":
        content["added_tokens"][0]["lstrip"] = True
    elif what == "special":
        config = {"chat_template": CHATML, "eos_token": "<|im_end|>"}
        (other / "tokenizer_config.json").write_text(json.dumps(config))
    else:
        (other / "chat_template.jinja").write_text("{{ messages }}")
    file.write_text(json.dumps(content))
    second = identity(str(other), str(other))
    fields = {
        "merges": {"encoding"},
        "token": {"encoding", "added_tokens_sha256"},
        "special": {"special_tokens_sha256"},
        "template": set(),
    }
    tokenizers = first["tokenizer"], second["tokenizer"]
    names = {
        name for name in tokenizers[0] if tokenizers[0][name] != tokenizers[1][name]
    }
    assert names == fields[what]
    templates = first["tokenizer_template"] != second["tokenizer_template"]
    assert templates is (what == "template")
    assert second["processor_template"] == second["tokenizer_template"]


def test_a_processor_that_cannot_be_loaded(tmp_path: Path) -> None:
    """The engine then has none, and so do we; the tokenizer is told all the same."""
    processor = {"processor_class": "NoSuchProcessor"}
    path = save(tmp_path, byte_level(), files={
        "preprocessor_config.json": json.dumps(processor),
        "processor_config.json": "{broken",
    })  # fmt: skip
    told = identity(str(path), str(path))
    assert told["processor_template"] is None
    assert told["tokenizer_template"] == sha(CHATML)


def test_a_class_that_reads_the_file_otherwise(tmp_path: Path) -> None:
    """Llama's class has a pre-tokenizer of its own: text where the ids are others."""
    path = save(
        tmp_path,
        metaspace(scheme="first"),
        tokenizer_config={"tokenizer_class": "LlamaTokenizer"},
    )
    text = identity(str(path), str(path))["differing_text"]
    assert text is not None
    file = Tokenizer.from_file(str(path / "tokenizer.json"))
    backend = load(path).backend_tokenizer
    assert pack_ids(file.encode(text).ids) != pack_ids(backend.encode(text).ids)


def test_special_tokens_that_are_added_otherwise(tmp_path: Path) -> None:
    """Also what is put around a text is compared."""
    path = save(tmp_path, byte_level())
    tokenizer = load(path)
    assert differing_text(tokenizer, path / "tokenizer.json") is None
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 400)]
    )
    assert differing_text(tokenizer, path / "tokenizer.json") == "a b"


class Tiktoken:
    """As tiktoken's Encoding keeps its parts."""

    _pat_str = r"\w+"
    _mergeable_ranks = {b"a": 0, b"\xff": 1}  # noqa: RUF012 - as there
    _special_tokens = {"<|x|>": 2}  # noqa: RUF012 - as there


class Written:
    """A tokenizer written in Python."""

    special_tokens_map = {"eos_token": "</s>"}  # noqa: RUF012 - as there
    init_kwargs = {"legacy": True, "do_lower_case": ["no", "word"]}  # noqa: RUF012

    def get_vocab(self) -> dict[str, int]:
        """Two tokens."""
        return {"b": 1, "a": 0}


def test_a_tiktoken_tokenizer() -> None:
    """By its pattern, ranks and special tokens."""
    tokenizer = Written()
    tokenizer.model = Tiktoken()  # type: ignore[attr-defined]
    fields = tokenizer_fields(tokenizer)
    assert fields["encoding"] == {
        "kind": "tiktoken",
        "pattern_sha256": sha(r"\w+"),
        "ranks_sha256": sha([["61", 0], ["ff", 1]]),
        "special_tokens_sha256": sha([["<|x|>", 2]]),
    }
    assert fields["complete"] is True


def test_a_tokenizer_that_cannot_be_identified(tmp_path: Path) -> None:
    """Its vocabulary does not tell how it splits: incomplete."""
    assert tokenizer_fields(Written()) == {
        "class": f"{__name__}.Written",
        "vocab_size": 2,
        "vocab_sha256": sha([["a", 0], ["b", 1]]),
        "special_tokens_sha256": sha({"eos_token": "</s>"}),
        "init_kwargs_sha256": sha({"legacy": True}),
        "encoding": None,
        "complete": False,
    }
    assert tokenizer_fields(object()) == {
        "class": "builtins.object",
        "special_tokens_sha256": None,
        "encoding": None,
        "complete": False,
    }
    assert differing_text(Written(), tmp_path / "nothing") is None


def test_no_code_of_a_model_is_run(tmp_path: Path) -> None:
    """A tokenizer that is code cannot be fingerprinted; the code is not touched."""
    ran = tmp_path / "ran"
    path = save(
        tmp_path / "model",
        byte_level(),
        tokenizer_config={
            "tokenizer_class": "Own",
            "auto_map": {"AutoTokenizer": ["own.Own", "own.Own"],
                         "AutoProcessor": "own.Own"},
        },
        files={"own.py": f"open({str(ran)!r}, 'w')\nclass Own: pass\n"},
    )  # fmt: skip
    command = [sys.executable, "-m", "render.fingerprint_process"]
    ended = subprocess.run(
        [*command, str(path), str(path)],
        check=False, capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert not ran.exists()
    if ended.returncode == 0:  # it may also be read as a plain fast tokenizer
        assert json.loads(ended.stdout)["tokenizer"]["class"].startswith(
            "transformers."
        )


def test_a_pre_tokenizer_of_its_own(tmp_path: Path) -> None:
    """Whatever the file says is hashed: digits apart change the serialisation."""
    tokenizer = byte_level()
    first = identity(*[str(save(tmp_path / "a", tokenizer))] * 2)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), tokenizer.pre_tokenizer]
    )
    second = identity(*[str(save(tmp_path / "b", tokenizer))] * 2)
    assert first["tokenizer"]["vocab_sha256"] == second["tokenizer"]["vocab_sha256"]
    assert first["tokenizer"]["encoding"] != second["tokenizer"]["encoding"]
