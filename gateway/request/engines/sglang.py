"""What keeps requests apart at SGLang: adapter, `cache_salt` and `extra_key`.

An adapter is named by `model`, as `BASE:ADAPTER`, else by `lora_path`; events tell its
name. They do not tell an `extra_key`, and name its blocks as those without one. Told
from `srt/entrypoints/openai/serving_base.py`.
"""

from typing import TypeGuard

import msgspec

from gateway.request.peek import Peeked, text_of
from kvindex.blocks import Namespace


def split(model: str) -> tuple[str, str | None]:
    """The base model and the adapter that a name stands for."""
    base, colon, adapter = model.partition(":")
    return (base.strip(), adapter.strip() or None) if colon else (model, None)


def namespace(found: Namespace, peeked: Peeked, adapter: str | None) -> Namespace:
    """The namespace of a body, for whose model `found` is.

    `adapter` is the one in the model's name. Where the name is an adapter's alone,
    some releases answer as the base model: whose the blocks are is not known.
    """
    untold = [] if found.adapter is None else ["bare"]
    path, key = peeked.lora_path, peeked.extra_key
    if adapter is None and found.adapter is None and _is_given(path):
        adapter = text_of(path)
        if adapter is None:  # such as one for each of several prompts
            untold.append(f"lora_path={_raw(path)}")
    if _is_given(key):
        text = text_of(key)
        told = _raw(key) if text is None else msgspec.json.encode(text).decode()
        untold.append(f"extra_key={told}")
    return msgspec.structs.replace(
        found,
        adapter=adapter or found.adapter,
        untold="\0".join(untold) if untold else None,
    )


def _is_given(raw: msgspec.Raw | None) -> TypeGuard[msgspec.Raw]:
    return raw is not None and bytes(raw) != b'""'


def _raw(raw: msgspec.Raw) -> str:
    return bytes(raw).decode("utf-8", "replace")
