"""Fingerprints computed and kept: one process per model, whatever goes wrong."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from render import Renderer, fingerprints
from render.fingerprint import difference, digest, sha256_json
from render.fingerprint_cache import FingerprintCache
from render.fingerprint_child import NoFingerprint, run_child
from tests.render.fingerprinting import TOLD, Child, cache_files, compute
from tests.render.models import byte_level, metaspace, save

DATA = Path(__file__).parent.parent / "data" / "fingerprints"


@pytest.mark.timeout(180)
def test_the_real_process(vllm: Renderer, cache: FingerprintCache) -> None:
    """The built-in model from end to end: whole, published, equal to itself."""
    found = fingerprints.compute(
        vllm, cache=cache, tool_parser="hermes", reasoning_parser="qwen3"
    )
    published = json.loads(json.dumps(found.published()))
    assert list(published) == ["digest", "compared", "info"]
    compared = published["compared"]
    assert list(compared) == [
        "version", "model_type", "extension", "extension_render_version",
        "use_harmony", "custom_tokenizer", "input_processor", "templates", "tokenizer",
    ]  # fmt: skip
    assert (compared["version"], compared["model_type"]) == (2, "qwen3")
    assert (compared["extension"], compared["input_processor"]) == (
        "ServingExtension", "default",
    )  # fmt: skip
    assert compared["templates"]["server"] is None
    assert published["digest"] == sha256_json(compared)
    info = published["info"]
    assert (info["tool_parser"], info["reasoning_parser"]) == ("hermes", "qwen3")
    assert {"profile", "switches", "jinja2", "encoder", "transformers"} <= info.keys()
    assert found.unfit is None
    assert difference(found, published) is None
    # As other releases of transformers have it, of the same directory.
    elsewhere = json.loads((DATA / "qwen3-demo.json").read_text())
    assert list(elsewhere) == [
        "transformers 4.57.6, tokenizers 0.22.2",
        "transformers 5.19.0, tokenizers 0.23.3",
    ]
    older, same = [difference(found, theirs) for theirs in elsewhere.values()]
    assert same is None
    assert older is not None
    assert older.reason == "library_differs"
    # Once more, from what was kept.
    again = fingerprints.compute(vllm, cache=cache, child=Child("not asked"))
    assert again.digest == found.digest


def test_what_options_change(tiny: Path, cache: FingerprintCache) -> None:
    """The server's template is compared; parsers and profile are only told along."""
    child = Child()
    plain = compute(tiny, cache, child)
    same = compute(tiny, cache, child, profile="sglang")
    assert (plain.digest, plain.info["profile"]) == (same.digest, "vllm")
    assert same.info["profile"] == "sglang"
    template = "{{ messages[0].content }}"
    other = compute(tiny, cache, child, chat_template=template)
    assert other.compared["templates"]["server"] == sha256_json(template)
    assert other.compared["tokenizer"] == plain.compared["tokenizer"]
    assert other.digest == digest(other.compared) != plain.digest
    assert child.calls == 1


def test_extensions(tmp_path: Path, cache: FingerprintCache) -> None:
    """Kimi-K3 is served by a class of its own."""
    path = save(tmp_path / "k3", byte_level(), config={"model_type": "kimi_k3"})
    found = compute(path, cache, Child())
    assert found.compared["extension"] == "KimiK3ServingExtension"


def test_harmony(
    tmp_path: Path, cache: FingerprintCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gpt-oss: neither template nor tokenizer count, openai-harmony's release does."""
    path = save(tmp_path / "oss", byte_level(), config={"model_type": "gpt_oss"})
    monkeypatch.setattr(fingerprints, "installed", lambda _: "0.0.8")
    found = compute(path, cache, Child("not asked"))
    assert found.compared == {
        "version": 2,
        "model_type": "gpt_oss",
        "extension": "ServingExtension",
        "extension_render_version": 1,
        "use_harmony": True,
        "harmony": {
            "encoding": "HARMONY_GPT_OSS",
            "package": "openai-harmony",
            "version": "0.0.8",
        },
    }
    dated = difference(found, found.published())
    assert dated is not None
    assert dated.reason == "clock"  # every prompt has the date
    assert "--proof digest-or-probe" in dated.detail
    monkeypatch.setattr(fingerprints, "installed", lambda _: None)
    without = compute(path, cache, Child("not asked"))
    unproven = difference(without, without.published())
    assert unproven is not None
    assert unproven.reason == "incomplete"


def test_where_transformers_does_otherwise(
    tmp_path: Path, tiny: Path, cache: FingerprintCache
) -> None:
    """An equal digest proves nothing where the renderer does something else."""
    another = "transformers finds another chat template"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"differing_text": " a"}, "transformers does not encode as tokenizer.json"),
        ({"processor_template": "x"}, another),
        ({"processor_template": None, "tokenizer_template": None}, another),
    ]
    for number, (told, words) in enumerate(cases):
        kept = FingerprintCache(tmp_path / str(number))
        found = compute(tiny, kept, Child(TOLD | told))
        unproven = difference(found, found.published())
        assert unproven is not None
        assert unproven.reason == "not_in_fingerprint"
        assert unproven.detail.startswith(words)
        assert unproven.detail.endswith("; --proof digest-or-probe compares ids")
        assert unproven.detail.startswith(found.info["unfit"])
    defaults = {"enable_thinking": False}
    found = compute(tiny, cache, Child(), default_chat_template_kwargs=defaults)
    assert found.unfit is not None
    assert "--default-chat-template-kwargs" in found.unfit.detail


@pytest.mark.parametrize("where", ["model", "given"])
def test_a_template_that_asks_for_the_date(
    tiny: Path, cache: FingerprintCache, where: str
) -> None:
    """An equal digest does not tell that the worker's day is ours."""
    dated = "{{ strftime_now('%d %b %Y') }}{{ messages[0].content }}"
    told = TOLD
    options = {"chat_template": dated}
    if where == "model":
        (tiny / "chat_template.jinja").write_text(dated)
        there = sha256_json(dated)
        told = TOLD | {"processor_template": there, "tokenizer_template": there}
        options = {}
    found = compute(tiny, cache, Child(told), **options)
    assert found.unfit is not None
    assert found.unfit.reason == "clock"
    assert found.unfit.detail == fingerprints.DATED


def test_llama(tmp_path: Path, cache: FingerprintCache) -> None:
    """A class that splits otherwise than its tokenizer.json: found by the process."""
    config: dict[str, object] = {"tokenizer_class": "LlamaTokenizer"}
    path = save(tmp_path / "llama", metaspace(), tokenizer_config=config)
    found = compute(path, cache, run_child)
    assert found.unfit is not None
    assert found.unfit.reason == "not_in_fingerprint"


@pytest.mark.parametrize(
    "change",
    ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
     "additional_chat_templates/tool_use.jinja", "special_tokens_map.json"],
)  # fmt: skip
def test_other_files(tiny: Path, cache: FingerprintCache, change: str) -> None:
    """A file that changes, or is new, is read; weights are not."""
    child = Child()
    renderer = Renderer.load(tiny)

    def run() -> int:
        fingerprints.compute(renderer, cache=cache, child=child)
        return child.calls

    assert run() == 1
    (tiny / "model.safetensors").write_bytes(b"x" * 1000)
    assert run() == 1
    file = tiny / change
    file.parent.mkdir(exist_ok=True)
    before = file.read_text() if file.exists() else ""
    file.write_text(before + "\n")
    assert run() == 2
    assert run() == 2


def test_other_libraries(
    tiny: Path, cache: FingerprintCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another release of transformers made is not found."""
    child = Child()
    compute(tiny, cache, child)
    monkeypatch.setattr(fingerprints, "installed", lambda name: f"{name} 99")
    compute(tiny, cache, child)
    assert child.calls == 2


def test_files_that_change_meanwhile(tiny: Path, cache: FingerprintCache) -> None:
    """What the process read may be neither: it is not kept."""

    class Slow(Child):
        def __call__(self, *args: Any) -> dict[str, Any]:
            (tiny / "special_tokens_map.json").write_text(json.dumps({"n": self.calls}))
            return super().__call__(*args)

    child = Slow()
    compute(tiny, cache, child)
    assert cache_files(cache) == []


def test_files_that_cannot_be_read(tiny: Path, cache: FingerprintCache) -> None:
    """A directory that is gone since it was loaded."""
    renderer = Renderer.load(tiny)
    tiny.rename(tiny.with_name("gone"))
    with pytest.raises(NoFingerprint, match="cannot read"):
        fingerprints.compute(renderer, cache=cache, child=Child())


def test_nothing_loads_transformers() -> None:
    """No server of ours does: it takes a second and 100 MB."""
    code = (
        "import sys, gateway.app, gateway.endpoints.render_server, gateway.cli\n"
        "import simworker.server, render.fingerprints\n"
        "sys.exit('transformers' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
