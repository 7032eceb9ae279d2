"""The real Qwen3 tokenizer, and small models trained on the spot."""

from pathlib import Path

import pytest

from render import Renderer
from render.fingerprint_cache import FingerprintCache
from tests.render import gpt_oss
from tests.render.models import byte_level, save


@pytest.fixture(scope="session")
def qwen3(model_dir: Path) -> Path:
    """Qwen3's model directory."""
    return model_dir


@pytest.fixture(scope="session", params=["auto", "tokenizers"])
def renderer(request: pytest.FixtureRequest, vllm: Renderer, qwen3: Path) -> Renderer:
    """Qwen3's renderer, with the fast encoder and with the reference."""
    fast = request.param == "auto"
    return vllm if fast else Renderer.load(qwen3, encoder=request.param)


@pytest.fixture(scope="session")
def trtllm(vllm: Renderer) -> Renderer:
    """Qwen3's renderer as TensorRT-LLM."""
    return vllm.with_profile("trtllm")


@pytest.fixture(scope="session")
def sglang(vllm: Renderer) -> Renderer:
    """Qwen3's renderer as SGLang."""
    return vllm.with_profile("sglang")


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
