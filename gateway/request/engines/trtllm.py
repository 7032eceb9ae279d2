"""What keeps requests apart at TensorRT-LLM: `lora_request` and `cache_salt`.

Any model's name will do there. Events tell no adapter: its blocks' names differ from
those of base blocks, and that is all. Of a salt some releases tell, others do not; then
nothing is indexed under it.
"""

import msgspec

from gateway.request.peek import Peeked
from kvindex.blocks import Namespace


class LoraRequest(msgspec.Struct, frozen=True):
    """The part of a `lora_request` by which adapters are told apart."""

    lora_name: str
    lora_int_id: int


def split(model: str) -> tuple[str, str | None]:
    """The base model and the adapter that a name stands for: here it is one name."""
    return model, None


def namespace(found: Namespace, peeked: Peeked, adapter: str | None) -> Namespace:
    """The namespace of a body, for whose model `found` is."""
    if peeked.lora_request is None:
        return found
    try:
        asked = msgspec.json.decode(peeked.lora_request, type=LoraRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.structs.replace(found, untold="lora_request")  # it is refused
    return msgspec.structs.replace(
        found, adapter=asked.lora_name, untold=f"lora_int_id={asked.lora_int_id}"
    )
