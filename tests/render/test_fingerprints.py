"""Fingerprints computed and kept: one process per model, whatever goes wrong."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from render import Renderer, fingerprint_cache, fingerprint_child, fingerprints
from render.fingerprint import Fingerprint, difference, digest, sha256_json
from render.fingerprint_cache import FingerprintCache
from render.fingerprint_child import Deadline, NoFingerprint, run_child
from tests.render.models import CHATML, byte_level, metaspace, save

DATA = Path(__file__).parent.parent / "data" / "fingerprints"
TOLD: dict[str, Any] = {
    "processor_template": sha256_json(CHATML),
    "tokenizer_template": sha256_json(CHATML),
    "tokenizer": {"class": "x", "encoding": {"kind": "tokenizers"}, "complete": True},
    "libraries": {"transformers": "5.0.0", "tokenizers": "0.23.0"},
    "differing_text": None,
}


class Child:
    """Stands in for the process: tells the same, and counts."""

    def __init__(self, told: Any = TOLD) -> None:
        self.told = told
        self.calls = 0

    def __call__(self, model: Path, tokenizer: Path, until: Deadline) -> dict[str, Any]:
        """What the process would tell."""
        self.calls += 1
        told: dict[str, Any] = self.told
        return told


@pytest.fixture
def cache(tmp_path: Path) -> FingerprintCache:
    """An empty cache."""
    return FingerprintCache(tmp_path / "cache")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A small model's directory."""
    return save(tmp_path / "tiny", byte_level())


def compute(
    path: Path, cache: FingerprintCache, child: Any, **more: Any
) -> Fingerprint:
    """The fingerprint of a directory."""
    loaded = Renderer.load(path, **more)
    return fingerprints.compute(loaded, cache=cache, child=child)


def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    """Let another program be the child process."""
    (tmp_path / "other_child.py").write_text(code)
    monkeypatch.setattr(fingerprint_child, "MODULE", "other_child")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_the_real_process(model_dir: Path, cache: FingerprintCache) -> None:
    """The built-in model from end to end: whole, published, equal to itself."""
    renderer = Renderer.load(model_dir)
    found = fingerprints.compute(
        renderer, cache=cache, tool_parser="hermes", reasoning_parser="qwen3"
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
    again = fingerprints.compute(renderer, cache=cache, child=Child("not asked"))
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
    assert difference(found, found.published()) is None
    monkeypatch.setattr(fingerprints, "installed", lambda _: None)
    without = compute(path, cache, Child("not asked"))
    unproven = difference(without, without.published())
    assert unproven is not None
    assert unproven.reason == "incomplete"


def test_where_transformers_does_otherwise(
    tmp_path: Path, tiny: Path, cache: FingerprintCache
) -> None:
    """An equal digest proves nothing where the renderer does something else."""
    for told, word in (
        ({"differing_text": " a"}, "tokenizer_differs"),
        ({"processor_template": "x"}, "template_differs"),
        ({"processor_template": None, "tokenizer_template": None}, "template_differs"),
    ):
        found = compute(tiny, FingerprintCache(tmp_path / word), Child(TOLD | told))
        unproven = difference(found, found.published())
        assert unproven is not None
        assert unproven.reason == word
        assert found.info["unfit"] == unproven.detail
        (tmp_path / word).rename(tmp_path / f"{word}-{time.monotonic_ns()}")
    defaults = {"enable_thinking": False}
    found = compute(tiny, cache, Child(), default_chat_template_kwargs=defaults)
    assert found.unfit is not None
    assert "--default-chat-template-kwargs" in found.unfit.detail


def test_llama(tmp_path: Path, cache: FingerprintCache) -> None:
    """A class that splits otherwise than its tokenizer.json: found by the process."""
    config: dict[str, object] = {"tokenizer_class": "LlamaTokenizer"}
    path = save(tmp_path / "llama", metaspace(), tokenizer_config=config)
    found = compute(path, cache, run_child)
    assert found.unfit is not None
    assert found.unfit.reason == "tokenizer_differs"


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


def cache_files(cache: FingerprintCache) -> list[Path]:
    """What is kept."""
    return sorted(cache._directory.glob("*.json"))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"{}", b"\xff\x00", b'{"key": "x", "value": {}}',
     b'{"key": KEY}', b'{"key": KEY, "value": []}', b'{"key": KEY, "value": {}}',
     b'{"key": KEY, "value": {"tokenizer": 1}}', b"[" * 100_000, b'"' + b"x" * 2**21],
)  # fmt: skip
def test_a_damaged_cache(tiny: Path, cache: FingerprintCache, content: bytes) -> None:
    """It is as if nothing had been kept, and it is mended."""
    child = Child()
    wanted = compute(tiny, cache, child)
    (file,) = cache_files(cache)
    file.write_bytes(content.replace(b"KEY", json.dumps(file.stem).encode()))
    assert compute(tiny, cache, child) == wanted
    assert child.calls == 2
    assert compute(tiny, cache, child) == wanted
    assert child.calls == 2


@pytest.mark.parametrize("spoil", ["file", "directory", "lock", "nothing"])
def test_no_cache_can_be_kept(tiny: Path, tmp_path: Path, spoil: str) -> None:
    """The directory is a file, an entry or the lock is a directory: computed anew."""
    directory = tmp_path / "cache"
    child = Child()
    cache = FingerprintCache(directory)
    if spoil == "file":
        directory.write_text("")
    elif spoil == "lock":
        (directory / "lock").mkdir(parents=True)
    elif spoil == "directory":
        compute(tiny, cache, child)
        (file,) = cache_files(cache)
        file.unlink()
        file.mkdir()
    child.calls = 0
    for _ in range(2):
        assert compute(tiny, cache, child).digest is not None
    assert child.calls == {"file": 2, "directory": 2, "lock": 1, "nothing": 1}[spoil]
    assert not list(directory.glob(".*.part"))


def test_the_cache_is_bounded(
    cache: FingerprintCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest entries go, and what killed processes left."""
    monkeypatch.setattr(fingerprint_cache, "KEPT", 5)
    cache.put("first", {})
    left = cache._directory / ".killed.part"
    left.write_text("half")
    os.utime(left, (1, 1))
    for number in range(20):
        cache.put(f"n{number}", {"number": number})
        file = cache._directory / f"n{number}.json"
        os.utime(file, (10 + number, 10 + number))
    assert len(cache_files(cache)) == 5
    assert cache.get("n19") == {"number": 19}
    assert cache.get("n0") is None
    assert not left.exists()


def test_threads_at_once(tiny: Path, cache: FingerprintCache) -> None:
    """The others wait for the first, and find what it kept."""

    class Slow(Child):
        def __call__(self, *args: Any) -> dict[str, Any]:
            time.sleep(0.3)
            return super().__call__(*args)

    child = Slow()
    renderer = Renderer.load(tiny)
    found: list[Fingerprint] = []

    def run() -> None:
        found.append(fingerprints.compute(renderer, cache=cache, child=child))

    threads = [threading.Thread(target=run) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert child.calls == 1
    assert len({f.digest for f in found}) == 1


def test_processes_at_once(tiny: Path, tmp_path: Path) -> None:
    """One of two starts the child; both have the digest."""
    code = (
        "import os, pathlib, sys; from render import Renderer, fingerprints\n"
        "def child(model, tokenizer, until):\n"
        "    pathlib.Path(sys.argv[2], str(os.getpid())).touch()\n"
        "    return fingerprints.run_child(model, tokenizer, until)\n"
        "r = Renderer.load(sys.argv[1])\n"
        "print(fingerprints.compute(r, child=child).digest)\n"
    )
    ran = tmp_path / "ran"
    ran.mkdir()
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", code, str(tiny), str(ran)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        for _ in range(2)
    ]
    digests = {process.communicate(timeout=50)[0] for process in processes}
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64
    assert len(list(ran.iterdir())) == 1
    kept = tmp_path / "home" / "kv-gateway" / "fingerprints"
    assert len(list(kept.glob("*.json"))) == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [("import sys; sys.exit('nothing\\nmore')", "more"),
     ("raise ValueError('an odd file')", "ValueError: an odd file"),
     ("import os; os._exit(3)", "exit status 3"),
     ("import os; os.kill(os.getpid(), 9)", "exit status -9"),
     ("print('no json')", "no JSON"),
     ("print('[1]')", "no JSON"),
     ("print('{}')", "something else"),
     ("import os; os.write(1, b'\\xff' * 200_000)", "no JSON")],
)  # fmt: skip
def test_a_child_that_fails(
    tiny: Path, cache: FingerprintCache, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, code: str, said: str,
) -> None:  # fmt: skip
    """One line that tells why; nothing is kept."""
    module(monkeypatch, tmp_path, code)
    with pytest.raises(NoFingerprint, match=said) as raised:
        compute(tiny, cache, run_child)
    assert "\n" not in str(raised.value)
    assert cache_files(cache) == []


def test_a_child_that_hangs(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed when its time is up."""
    pid = tmp_path / "pid"
    module(
        monkeypatch, tmp_path,
        f"import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(1000)",
    )  # fmt: skip
    begun = time.monotonic()
    with pytest.raises(NoFingerprint, match="not done after 2 s"):
        run_child(tiny, tiny, Deadline(2))
    assert 1.9 < time.monotonic() - begun < 6
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_another_process_that_hangs(
    tiny: Path, cache: FingerprintCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not waited for without end."""
    monkeypatch.setattr(fingerprint_cache, "WAIT_S", 0.3)
    with cache.alone(lambda: False):
        assert compute(tiny, cache, Child()).digest is not None


def stopping(after_s: float) -> Deadline:
    """A deadline that is told to stop."""
    stopped = threading.Event()
    threading.Timer(after_s, stopped.set).start()
    return Deadline(60, stopped)


def test_told_to_stop(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the child runs, or while another process computes."""
    module(monkeypatch, tmp_path, "import time; time.sleep(1000)")
    begun = time.monotonic()
    with pytest.raises(NoFingerprint, match="stopped"):
        run_child(tiny, tiny, stopping(0.3))
    cache = FingerprintCache(tmp_path / "cache")
    with cache.alone(lambda: False), pytest.raises(NoFingerprint, match="stopped"):
        fingerprints.compute(
            Renderer.load(tiny), cache=cache, deadline=stopping(0.3), child=run_child
        )
    assert time.monotonic() - begun < 8


def test_a_talkative_child(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Much on stderr does not hold it up, and is not repeated."""
    code = "import sys; sys.stderr.write('x' * 10**7 + ' end'); print('{}')"
    module(monkeypatch, tmp_path, code)
    assert run_child(tiny, tiny, Deadline(30)) == {}
    module(monkeypatch, tmp_path, code + "; sys.exit(1)")
    with pytest.raises(NoFingerprint) as raised:
        run_child(tiny, tiny, Deadline(30))
    assert len(str(raised.value)) <= 300


def test_files_that_cannot_be_read(tiny: Path, cache: FingerprintCache) -> None:
    """A directory that is gone since it was loaded."""
    renderer = Renderer.load(tiny)
    tiny.rename(tiny.with_name("gone"))
    with pytest.raises(NoFingerprint, match="cannot read"):
        fingerprints.compute(renderer, cache=cache, child=Child())


def test_nothing_loads_transformers() -> None:
    """No server of ours does: it takes a second and 100 MB."""
    code = (
        "import sys, gateway.app, gateway.render_server, gateway.cli\n"
        "import simworker.server, render.fingerprints\n"
        "sys.exit('transformers' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the XDG rules say: a relative one does not count."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fingerprint_cache.user_cache_dir() == tmp_path / "kv-gateway"
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fingerprint_cache.user_cache_dir() == tmp_path / ".cache" / "kv-gateway"
