"""An OpenAI request to token ids, on a CPU. No sockets."""

from render.errors import REASONS, ModelNotFound, Unrenderable
from render.model import Model
from render.options import RenderOptions
from render.prompt import Rendered
from render.refused import RenderRefused
from render.renderer import Renderer
from render.service import RenderService

__all__ = [
    "REASONS",
    "Model",
    "ModelNotFound",
    "RenderOptions",
    "RenderRefused",
    "RenderService",
    "Rendered",
    "Renderer",
    "Unrenderable",
]
