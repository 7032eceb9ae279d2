"""The real Qwen3 tokenizer, and small models trained on the spot."""

from pathlib import Path

import pytest

from render import Renderer
from render.fingerprint_cache import FingerprintCache
from simworker.model import demo_model_dir
from tests.render import gpt_oss
from tests.render.models import byte_level, save


@pytest.fixture(scope="session")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Qwen3's model directory."""
    return demo_model_dir(tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="session", params=["auto", "tokenizers"])
def renderer(request: pytest.FixtureRequest, qwen3: Path) -> Renderer:
    """Qwen3's renderer, with the fast encoder and with the reference."""
    return Renderer.load(qwen3, encoder=request.param)


@pytest.fixture(scope="session")
def vllm(qwen3: Path) -> Renderer:
    """Qwen3's renderer as vLLM."""
    return Renderer.load(qwen3)


@pytest.fixture(scope="session")
def trtllm(qwen3: Path) -> Renderer:
    """Qwen3's renderer as TensorRT-LLM."""
    return Renderer.load(qwen3, profile="trtllm")


@pytest.fixture(scope="session")
def sglang(qwen3: Path) -> Renderer:
    """Qwen3's renderer as SGLang."""
    return Renderer.load(qwen3, profile="sglang")


@pytest.fixture(scope="session")
def oss(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    """gpt-oss's renderer as vLLM, on the day of its captures."""
    path = gpt_oss.save(tmp_path_factory.mktemp("gpt_oss"))
    return Renderer.load(path, encoder="tokenizers", clock=lambda: gpt_oss.DAY)


@pytest.fixture
def cache(tmp_path: Path) -> FingerprintCache:
    """An empty cache."""
    return FingerprintCache(tmp_path / "cache")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A small model's directory."""
    return save(tmp_path / "tiny", byte_level())
