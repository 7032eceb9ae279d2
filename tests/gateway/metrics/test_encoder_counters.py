"""The metrics of the encoders' sampled check."""

from pathlib import Path

from gateway.loading import load_renderer
from gateway.metrics.encoder_counters import encoder_counters
from gateway.metrics.registry import ServerMetrics
from gateway.settings.render_config import RenderConfig
from tests.render import models


async def test_counters(tmp_path: Path) -> None:
    """One series for each model that is loaded, from the start."""
    path = models.save(tmp_path / "tiny", models.byte_level())
    config = RenderConfig(model=str(path), encoder="tokenizers", verify_encoder=0.0)
    renderer = load_renderer(config, str(path), "vllm")
    renderer.render_completion({"prompt": "hello"})
    metrics = ServerMetrics()
    metrics.watch(encoder_counters(lambda: [renderer, renderer]))
    page = (await metrics.exposition()).decode()
    assert f'kv_gateway_encoder_checks_total{{model="{path}"}} 0.0\n' in page
    assert f'kv_gateway_encoder_mismatches_total{{model="{path}"}} 0.0\n' in page
