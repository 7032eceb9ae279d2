"""Loading a renderer as the options say; it holds the GIL for most of a second."""

import ctypes
import logging
import time

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
    give_back_memory()
    took = time.monotonic() - begun
    log.info(
        "model %s loaded in %.1f s, encoder %s", source, took, renderer.encoder_name
    )
    return renderer


def give_back_memory() -> None:
    """Return to the system what was freed: after loading a tokenizer 130 of 350 MB.

    glibc keeps it otherwise; other C libraries have no such function.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
