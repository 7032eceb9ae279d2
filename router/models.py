"""Model names: which base model and adapter an id in `/v1/models` stands for.

Blocks are indexed under the base model, so aliases of one model must share a name.
Nothing here looks into a model.
"""

from collections.abc import Iterable, Mapping

import msgspec


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a worker's `/v1/models`.

    vLLM lists a served model with `root` (where its weights are) once per alias, and
    an adapter with `parent`, the id of its base model.
    """

    id: str
    root: str | None = None
    parent: str | None = None


class ModelName(msgspec.Struct, frozen=True, kw_only=True):
    """What an id stands for: a base model, and an adapter on it or none."""

    base: str
    adapter: str | None = None


def name_models(
    listing: Iterable[ListedModel], known: Mapping[str, str]
) -> dict[str, ModelName]:
    """Name every id of a worker's listing, the base models first.

    Ids with one root are aliases: they share the base name that one of them already
    has in the fleet (`known`: id -> base), else the first id. A name once given stays,
    as blocks are indexed under it.
    """
    entries = list(listing)
    aliases: dict[str, list[str]] = {}
    for entry in entries:
        if entry.parent is None:
            aliases.setdefault(entry.root or entry.id, []).append(entry.id)
    names: dict[str, ModelName] = {}
    for ids in aliases.values():
        base = next((known[id] for id in ids if id in known), ids[0])
        names.update((id, ModelName(base=base)) for id in ids)
    for entry in entries:
        if entry.parent is not None:
            parent = names.get(entry.parent)
            base = parent.base if parent else known.get(entry.parent, entry.parent)
            names[entry.id] = ModelName(base=base, adapter=entry.id)
    return names
