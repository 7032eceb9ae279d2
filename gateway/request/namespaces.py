"""Which namespace a body's blocks are in, at the workers of each engine.

An engine is told by the profile by which its workers' requests are rendered. A body
that names an adapter goes to workers that list it, where some do, else to those whose
engine reads the name; to the others only where there are no such ones.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from gateway.request.engines import sglang, trtllm, vllm
from gateway.request.peek import Peeked
from kvindex.blocks import Namespace
from router.pool import WorkerPool
from router.worker import Worker


class Engine(Protocol):
    """A file of `engines`."""

    def split(self, model: str) -> tuple[str, str | None]:
        """The base model and the adapter that a name no worker lists stands for."""
        ...

    def namespace(
        self, found: Namespace, peeked: Peeked, adapter: str | None
    ) -> Namespace:
        """The namespace of a body for whose model, with `adapter`, `found` is."""
        ...


ENGINES: Mapping[str, Engine] = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}
"""By profile."""


class Namespaces(msgspec.Struct, frozen=True):
    """The namespaces of a body by profile; `model` is the one that workers list.

    `without` are the URLs of workers that do not know its adapter, where others do.
    """

    model: str | None
    by_profile: Mapping[str, Namespace]
    without: frozenset[str] = frozenset()

    @property
    def of_all(self) -> Namespace:
        """That of raw content, which no profile cuts: the one that is most apart."""

        def parts(of: Namespace) -> int:
            return (of.adapter is not None) + (of.untold is not None)

        return max(self.by_profile.values(), key=parts)


def namespaces(pool: WorkerPool, peeked: Peeked) -> Namespaces:
    """The namespaces of a body, and which workers are not for it."""
    model = peeked.model
    names: dict[str, tuple[str | None, str | None]]
    names = dict.fromkeys(ENGINES, (model, None))
    if model is not None and not _is_listed(pool, model):
        names = {profile: engine.split(model) for profile, engine in ENGINES.items()}
        bases = (base for base, _ in names.values() if base != model)
        model = next((base for base in bases if _is_listed(pool, base)), model)
    found = {base: pool.resolve(base, peeked.cache_salt) for base, _ in names.values()}
    by_profile = {
        profile: ENGINES[profile].namespace(found[base], peeked, adapter)
        for profile, (base, adapter) in names.items()
    }
    if all(namespace.adapter is None for namespace in by_profile.values()):
        return Namespaces(model, by_profile)
    known = {
        worker.url: _knows(worker, names[worker.profile][0], by_profile[worker.profile])
        for worker in pool.listing(model)
    }
    best = max(known.values(), default=0)
    without = frozenset(url for url, how_well in known.items() if how_well < best)
    return Namespaces(model, by_profile, without)


def _is_listed(pool: WorkerPool, model: str | None) -> bool:
    return any(model in worker.names for worker in pool.workers)


def _knows(worker: Worker, base: str | None, namespace: Namespace) -> int:
    """How well a worker knows what a body asks for: 2, it lists the adapter."""
    if namespace.adapter is None or (base is not None and base not in worker.names):
        return 0
    listed = any(name.adapter == namespace.adapter for name in worker.names.values())
    return 2 if listed else 1
