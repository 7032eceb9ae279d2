"""Services of one model with fixed ids, and bodies for them."""

import json
from typing import Any

import pytest

from render import Renderer, RenderOptions, RenderRefused, RenderService

USER = {"role": "user", "content": "hi"}


def service(renderer: Renderer, **options: Any) -> RenderService:
    """A service of 4096 tokens with fixed ids."""
    given: dict[str, Any] = {"served_model_names": ("m", "alias"), **options}
    options_ = RenderOptions(**{"max_model_len": 4096, **given})
    return RenderService(renderer, options_, clock=lambda: 7.5, new_id=lambda: "0123")


def body(**fields: Any) -> bytes:
    """A chat body, by default of one message."""
    return json.dumps({"messages": [USER], **fields}).encode()


def refusal(service: RenderService, route: str = "chat", **fields: Any) -> Any:
    """How a body is refused: status and the fields of the error."""
    defaults = {"messages": [USER]} if route in ("chat", "tokenize") else {}
    with pytest.raises(RenderRefused) as caught:
        getattr(service, route)(json.dumps({**defaults, **fields}).encode())
    return caught.value
