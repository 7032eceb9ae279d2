"""Loading a renderer as the options say; it holds the GIL for most of a second."""

import logging
import time

from gateway.shared_config import SharedConfig
from render import Renderer

log = logging.getLogger(__name__)


def load_renderer(config: SharedConfig, source: str, profile: str) -> Renderer:
    """The renderer of a model directory or hub id; raises ModelNotFound."""
    begun = time.monotonic()
    renderer = Renderer.load(
        source,
        profile=profile,
        encoder=config.encoder,
        chat_template=config.chat_template,
        default_chat_template_kwargs=config.default_chat_template_kwargs,
        chat_template_content_format=config.chat_template_content_format,
    )
    took = time.monotonic() - begun
    log.info(
        "model %s loaded in %.1f s, encoder %s", source, took, renderer.encoder_name
    )
    return renderer
