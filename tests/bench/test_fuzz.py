"""The fuzzer: what it found before stays mended, and it finds what is broken."""

from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from bench._fuzz_inputs import mutated
from bench._fuzz_target import Target
from bench._fuzz_targets import targets
from bench.fuzz import CORPUS, Fuzzer, corpus_of, failure

Every = Mapping[str, Target]
SEEDS = 15


@pytest.fixture
def every(loaded_once: None, monkeypatch: pytest.MonkeyPatch, model_dir: Path) -> Every:
    """The decoders by name, over the shared renderer; no import waits for a model."""
    monkeypatch.setattr("bench._fuzz_targets.demo_model_dir", lambda: model_dir)
    return targets()


def test_findings_stay_mended(every: Every, subtests: pytest.Subtests) -> None:
    """Some seeds, and what was once found, raise nothing."""
    for name, target in every.items():
        few = target.seeds[:: 1 + len(target.seeds) // SEEDS]
        with subtests.test(name):
            for data in [*few, *corpus_of(CORPUS / name.replace(" ", "_"))]:
                assert failure(target.call, data) is None


def test_a_few_inputs(every: Every, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """A short run over each decoder finds nothing."""
    for name, target in every.items():
        with subtests.test(name):
            fuzzer = Fuzzer(name, target, tmp_path, Random(name))
            fuzzer.go(60, seconds=0.3)
            assert fuzzer.findings == {}


def test_what_is_broken_is_found(tmp_path: Path) -> None:
    """A decoder that fails on one byte: found, made small, kept once, and told."""

    def broken(data: bytes) -> None:
        if b"\xc1" in data:
            raise KeyError("what no decoder raises")

    fuzzer = Fuzzer("x", Target([b"some bytes"], broken), tmp_path, Random(3))
    fuzzer.go(500)
    (path,) = (tmp_path / "x").iterdir()
    assert path.read_bytes() == b"\xc1"
    assert list(fuzzer.findings.values()) == [str(path)]
    assert "1 findings" in fuzzer.line()


def test_structures_get_past_the_first_check() -> None:
    """Values of JSON are changed, and the whole is still JSON now and then."""
    rng = Random(1)
    seed = b'{"model": "m", "messages": [{"role": "user", "content": "hello"}]}'
    broken = {mutated(rng, seed, seed) for _ in range(300)}
    assert len(broken) > 200
    assert sum(data.startswith(b'{"model":') and data[-1:] == b"}" for data in broken)
