"""The models a simulated vLLM worker serves: base names, adapters, their listing."""

from collections.abc import Sequence

import msgspec

from render.refused import unknown_model
from render.tokens import permission
from simworker.hashing import Identity
from simworker.options import read_adapters


class Models:
    """Which names may be asked for, and what each means for the cache.

    `adapters` are NAME=PATH. Raises BadOptions for one that is not.
    """

    def __init__(
        self,
        names: Sequence[str],
        adapters: Sequence[str],
        *,
        root: str,
        max_model_len: int,
        created: int,
    ) -> None:
        self._names = list(names)
        self._root = root
        self._max_model_len = max_model_len
        self._created = created
        self._adapters = {
            name: msgspec.structs.replace(adapter, adapter_id=number)
            for number, (name, adapter) in enumerate(
                read_adapters(adapters).items(), start=1
            )
        }

    @property
    def main(self) -> str:
        """The first name: what answers call the base model."""
        return self._names[0]

    def resolve(self, asked: str | None, salt: str | None) -> tuple[str, Identity]:
        """The name answers carry, and the namespace. Raises RenderRefused (404)."""
        if asked is None or asked in self._names:
            return self.main, Identity(salt=salt)
        adapter = self._adapters.get(asked)
        if adapter is None:
            raise unknown_model(asked, [*self._names, *self._adapters])
        return asked, msgspec.structs.replace(adapter, salt=salt)

    def listing(self) -> dict[str, object]:
        """The body of `/v1/models`."""
        cards = [self._card(name, root=self._root, parent=None) for name in self._names]
        cards += [
            self._card(name, root=adapter.adapter_path, parent=self.main)
            for name, adapter in self._adapters.items()
        ]
        return {"object": "list", "data": cards}

    def _card(self, name: str, *, root: str, parent: str | None) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "vllm",
            "root": root,
            "parent": parent,
            "max_model_len": self._max_model_len if parent is None else None,
            "permission": [permission(self._created)],
        }
