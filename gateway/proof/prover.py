"""Proof that one worker renders as this gateway does: asked for, compared, named.

By the fingerprint it publishes, else by probes, as `--proof` says. When it is asked for
is `proving.py`'s business.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from gateway.models import Renderers
from gateway.proof.not_proven import NotProven
from gateway.proof.probe_route import ProbeRoute
from gateway.proof.probing import Prober
from gateway.proof.published import Published, ask_published
from gateway.settings.config import Config
from gateway.threads import Late, QueueFull, Threads
from gateway.workers.asking import Asker, TooLong, Unanswered
from gateway.workers.engines import sglang, trtllm, vllm
from render import Renderer
from render.fingerprint import Difference, Fingerprint, difference
from render.probes import FEW, PROBES, Probe
from router.proof import PENDING, Blocker, Proof
from router.worker import Worker

PROVABLE = frozenset(
    {
        "no_fingerprint",
        "incomplete",
        "library_differs",
        "not_in_fingerprint",
        "clock",
    }
)
"""Differences of fingerprints that leave it open whether ids differ."""
DAYS_BEGIN_S = 900.0
"""In any time zone a day begins at some quarter of an hour; templates print dates."""
MODELS = 16
"""Models of one worker that are compared."""


class Own(Protocol):
    """This gateway's own fingerprints, by a model's name (`fingerprints.py`)."""

    def current(self, model: str) -> Fingerprint | None:
        """The fingerprint; None: not known, or not yet."""
        ...

    def problem(self, model: str) -> str | None:
        """Why there will be none, if that is so."""
        ...


class Engine(Protocol):
    """What an engine's file says of proving it."""

    PUBLISHES_FINGERPRINT: bool
    TELLS_OF_RENDERING: bool
    """Whether /server_info tells anything of it."""

    @property
    def PROBE_ROUTES(self) -> Sequence[ProbeRoute]:
        """The routes it may have that tell how it renders, the fullest first."""
        ...

    def ids_refusal(self, version: str | None) -> str | None:
        """Why a release takes no token ids with a chat, if so."""
        ...


ENGINES: Mapping[str, Engine] = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}


class Prover:
    """Proves workers; `own` tells this gateway's fingerprint of a model."""

    def __init__(
        self,
        config: Config,
        renderers: Renderers,
        threads: Threads,
        own: Own,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._renderers = renderers
        self._threads = threads
        self._own = own
        self._wall_clock = wall_clock
        self._day = 0
        self._ids: dict[Renderer, dict[str, bytes]] = {}

    @property
    def rendered(self) -> Sequence[str]:
        """The models that workers can be compared with, those without a name aside."""
        return self._renderers.names

    async def prove(
        self, asker: Asker, worker: Worker, *, few: bool = False
    ) -> Proof | Blocker:
        """Compare the worker with each renderer of a model that it lists.

        A `few` probes tell whether the answers are still those of a proven worker.
        """
        try:
            engine = self._engine(worker)
            models = self._models(worker)
            proofs = [
                await self._named(asker, engine, model, few=few, of=len(models))
                for model in models
            ]
        except NotProven as error:
            return error.blocker
        except TooLong as error:
            return Blocker(reason="probe_failed", detail=str(error))
        except Unanswered as error:
            return Blocker(reason="unreachable", detail=str(error))
        except (QueueFull, Late):
            return Blocker(reason="probe_failed", detail="this gateway is too busy")
        return _joined(proofs)

    def _engine(self, worker: Worker) -> Engine:
        if self._config.render == "never":
            raise NotProven("no_ids", "nothing is rendered here: --render never")
        engine = ENGINES.get(worker.engine or "")
        if engine is None:
            raise NotProven("no_ids", "its engine is not known to take any")
        refusal = engine.ids_refusal(worker.version)
        if refusal is not None:
            raise NotProven("no_ids", refusal)
        if worker.profile != worker.engine:
            raise NotProven("no_ids", f"it is rendered as {worker.profile} does")
        return engine

    def _models(self, worker: Worker) -> list[tuple[str, Renderer]]:
        """A name and the renderer of each model; adapters are rendered as theirs."""
        found: dict[tuple[str, Renderer], str] = {}
        for name, model in worker.names.items():
            if model.adapter is None:
                renderer = self._renderers.find(name, model.base, worker.profile)
                if renderer is not None:
                    found.setdefault((model.base, renderer), name)
        if not found:
            raise NotProven("no_model", "no model it lists is rendered here")
        if len(found) > MODELS:
            raise NotProven("probe_failed", f"it lists more than {MODELS} models")
        return [(name, renderer) for (_, renderer), name in found.items()]

    async def _named(
        self,
        asker: Asker,
        engine: Engine,
        model: tuple[str, Renderer],
        *,
        few: bool,
        of: int,
    ) -> Proof:
        """The proof of one model `of` so many; a blocker names which it is."""
        try:
            return await self._model(asker, engine, *model, few=few)
        except NotProven as error:
            if of == 1:
                raise
            found = error.blocker
            detail = f"model {model[0]}: {found.detail}"
            raise NotProven(found.reason, detail) from None

    async def _model(
        self, asker: Asker, engine: Engine, name: str, own: Renderer, *, few: bool
    ) -> Proof:
        ids = self._ids_of(own)
        routes = self._routes(engine)
        prober = Prober(asker, routes, own, self._threads, model=name, ids=ids)
        await prober.check()
        if engine.PUBLISHES_FINGERPRINT and not self._has_own(name):
            raise NotProven(PENDING, "this gateway's own fingerprint is not there yet")
        by_probes = self._by_probes(engine)
        info = await self._published(asker, engine, may_fail=by_probes)
        published = info.fingerprint if engine.PUBLISHES_FINGERPRINT else None
        # Without it, the worker may have a parser that reads the mode.
        reads_mode = info.reads_mode or (
            engine.PUBLISHES_FINGERPRINT and published is None
        )
        differs = difference(self._own.current(name), published)
        if differs is None:
            return Proof(by="digest", reads_mode=reads_mode)
        if not by_probes or differs.reason not in PROVABLE:
            raise NotProven(*differs)
        probes = FEW if few else PROBES
        features = await _probed(prober, probes, None if published is None else differs)
        return Proof(by="probes", shapes=features, reads_mode=reads_mode)

    async def _published(
        self, asker: Asker, engine: Engine, *, may_fail: bool
    ) -> Published:
        if not engine.TELLS_OF_RENDERING:
            return Published()
        try:
            return await ask_published(asker)
        except (NotProven, Unanswered):
            if may_fail:
                return Published()
            raise

    def _has_own(self, name: str) -> bool:
        """Whether it is known, or known that there will be none."""
        own = self._own
        return own.current(name) is not None or own.problem(name) is not None

    def _by_probes(self, engine: Engine) -> bool:
        """Whether probes may prove what fingerprints leave open."""
        if self._config.proof == "auto":
            return not engine.PUBLISHES_FINGERPRINT
        return self._config.proof == "digest-or-probe"

    def _ids_of(self, renderer: Renderer) -> dict[str, bytes]:
        """Its ids of the probes, kept as long as a template may print one date."""
        day = int(self._wall_clock() // DAYS_BEGIN_S)
        if day != self._day:
            self._day = day
            self._ids = {}
        return self._ids.setdefault(renderer, {})

    def _routes(self, engine: Engine) -> list[ProbeRoute]:
        routes = engine.PROBE_ROUTES
        return [r for r in routes if self._config.probe or not r.generates]


async def _probed(
    prober: Prober, probes: Sequence[Probe], differs: Difference | None
) -> frozenset[str]:
    """What probes prove; where they tell nothing, a known difference is the reason."""
    try:
        return await prober.run(probes)
    except NotProven as error:
        blocker = error.blocker
        if blocker.reason == "probe_failed" and differs is not None:
            raise NotProven(differs.reason, blocker.detail) from None
        raise


def _joined(proofs: Sequence[Proof]) -> Proof:
    """What holds for all models of a worker."""
    shapes = [proof.shapes for proof in proofs if proof.shapes is not None]
    return Proof(
        by="probes" if shapes else "digest",
        shapes=frozenset.intersection(*shapes) if shapes else None,
        reads_mode=any(proof.reads_mode for proof in proofs),
    )
