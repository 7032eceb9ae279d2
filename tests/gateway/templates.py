"""Renderers that differ from one another in their template only."""

import copy
import time
from collections.abc import Callable

import msgspec

from render import Renderer
from render.template import ChatTemplates

OTHER = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
"""Another template than any model's."""


def rendering(
    renderer: Renderer, template: str, *, clock: Callable[[], float] = time.time
) -> Renderer:
    """The same model with another template; loads no tokenizer."""
    model = msgspec.structs.replace(
        renderer.model, tokenizer_templates={"default": template}
    )
    other = copy.copy(renderer)
    templates = ChatTemplates.load(model, chat_template=None, clock=clock)
    vars(other).update(model=model, _templates=templates)
    return other
