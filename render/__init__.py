"""An OpenAI request to token ids, on a CPU. No sockets."""

from render.errors import REASONS, ModelNotFound, Unrenderable
from render.model import Model
from render.renderer import Rendered, Renderer

__all__ = ["REASONS", "Model", "ModelNotFound", "Rendered", "Renderer", "Unrenderable"]
