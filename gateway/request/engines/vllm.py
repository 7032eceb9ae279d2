"""What keeps requests apart at vLLM: the model's name and `cache_salt`.

An adapter is a model that it lists; its events name it. Other fields are ignored there.
"""

from gateway.request.peek import Peeked
from kvindex.blocks import Namespace


def split(model: str) -> tuple[str, str | None]:
    """The base model and the adapter that a name stands for: here it is one name."""
    return model, None


def namespace(found: Namespace, peeked: Peeked, adapter: str | None) -> Namespace:
    """The namespace of a body, for whose model `found` is."""
    return found
