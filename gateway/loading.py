"""Loading a renderer as the options say; it holds the GIL for most of a second."""

import logging
import time

from gateway import memory
from gateway.settings.shared_config import SharedConfig
from render import ModelNotFound, Renderer

log = logging.getLogger(__name__)


def load_renderer(config: SharedConfig, source: str, profile: str) -> Renderer:
    """The renderer of a model directory or hub id; raises ModelNotFound."""
    begun = time.monotonic()
    try:
        renderer = Renderer.load(
            source,
            profile=profile,
            encoder=config.encoder,
            verify_encoder=config.verify_encoder,
            tokenizer=config.tokenizer,
            tokenizer_mode=config.tokenizer_mode,
            revision=config.revision,
            chat_template=config.chat_template,
            default_chat_template_kwargs=config.default_chat_template_kwargs,
            chat_template_content_format=config.chat_template_content_format,
        )
    except OSError as error:  # such as a name that is too long for a path
        raise ModelNotFound(f"cannot be looked for: {error.strerror}") from None
    memory.give_back()
    took = time.monotonic() - begun
    log.info(
        "model %s loaded in %.1f s, encoder %s", source, took, renderer.encoder_name
    )
    return renderer
