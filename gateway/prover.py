"""Proof that one worker renders as this gateway does: asked for, compared, named.

By the fingerprint it publishes, else by probes, as `--proof` says. When it is asked for
is `proving.py`'s business.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from gateway.asking import Asker, Unanswered
from gateway.config import Config
from gateway.engines import sglang, trtllm, vllm
from gateway.models import Renderers
from gateway.probe_route import ProbeRoute
from gateway.probing import UNAUTHORISED, ProbeFailed, Prober
from gateway.threads import Late, QueueFull, Threads
from render import Renderer
from render.fingerprint import Difference, Fingerprint, difference
from router.proof import PENDING, Blocker, Proof
from router.worker import Worker

INFO_LIMIT = 512 * 1024
FINGERPRINT_LIMIT = 64 * 1024
PROVABLE = frozenset({"no_fingerprint", "incomplete", "library_differs"})
"""Differences of fingerprints that leave it open whether ids differ."""
READS_MODE = frozenset({"poolside_v1", "laguna", "minimax_m3"})
"""Reasoning parsers that read the mode of a prompt from its text."""

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


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

    PROBE_ROUTES: Sequence[ProbeRoute]

    def ids_refusal(self, version: str | None) -> str | None:
        """Why a release takes no token ids with a chat, if so."""
        ...


ENGINES: Mapping[str, Engine] = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}
DIGEST_ONLY = "trtllm"
"""The engine that publishes fingerprints: by default, nothing else proves it."""


class ServerInfo(msgspec.Struct, frozen=True):
    """What /server_info says of rendering."""

    render_fingerprint: msgspec.Raw = msgspec.Raw(b"null")
    reasoning_parser: object = None

    @property
    def fingerprint(self) -> object:
        """The published fingerprint, None where there is none."""
        if len(self.render_fingerprint) > FINGERPRINT_LIMIT:
            return False
        try:
            return msgspec.json.decode(self.render_fingerprint)
        except _UNREADABLE:
            return False

    @property
    def reads_mode(self) -> bool:
        """Whether its reasoning parser reads the mode of a prompt from its text."""
        told = self.fingerprint
        info: Any = told.get("info") if isinstance(told, dict) else None
        named = info.get("reasoning_parser") if isinstance(info, dict) else None
        return not READS_MODE.isdisjoint(
            name for name in (named, self.reasoning_parser) if isinstance(name, str)
        )


class NotProven(Exception):
    """It is not; `blocker` says why."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.blocker = Blocker(reason=reason, detail=detail)


class Prover:
    """Proves workers; `own` tells this gateway's fingerprint of a model."""

    def __init__(
        self, config: Config, renderers: Renderers, threads: Threads, own: Own
    ) -> None:
        self._config = config
        self._renderers = renderers
        self._threads = threads
        self._own = own

    async def prove(self, asker: Asker, worker: Worker) -> Proof | Blocker:
        """Compare the worker with each renderer of a model that it lists."""
        try:
            engine = self._engine(worker)
            models = self._models(worker)
            proofs = [await self._model(asker, worker, engine, *m) for m in models]
        except NotProven as error:
            return error.blocker
        except ProbeFailed as error:
            return Blocker(reason=error.reason, detail=error.detail)
        except Unanswered as error:
            return Blocker(reason="unreachable", detail=str(error))
        except (QueueFull, Late):
            return Blocker(reason="probe_failed", detail="this gateway is too busy")
        return _joined(proofs)

    def _engine(self, worker: Worker) -> Engine:
        engine = ENGINES.get(worker.engine or "")
        if engine is None:
            raise NotProven("no_ids", "of this engine it is not known how")
        refusal = engine.ids_refusal(worker.version)
        if refusal is not None:
            raise NotProven("no_ids", refusal)
        if worker.profile != worker.engine:
            raise NotProven("no_ids", f"it is rendered as {worker.profile} does")
        return engine

    def _models(self, worker: Worker) -> list[tuple[str, Renderer]]:
        """A name and the renderer of each model; adapters are rendered as theirs."""
        found: dict[int, tuple[str, Renderer]] = {}
        for name, model in worker.names.items():
            if model.adapter is None:
                renderer = self._renderers.find(name, model.base, worker.profile)
                if renderer is not None:
                    found.setdefault(id(renderer), (name, renderer))
        if not found:
            raise NotProven("no_model", "no model it lists is rendered here")
        return list(found.values())

    async def _model(
        self, asker: Asker, worker: Worker, engine: Engine, name: str, own: Renderer
    ) -> Proof:
        prober = Prober(asker, self._routes(engine), own, self._threads, model=name)
        await prober.check()
        if worker.engine == DIGEST_ONLY and not self._has_own(name):
            raise NotProven(PENDING, "this gateway's own fingerprint is not there yet")
        by_probes = self._by_probes(worker)
        try:
            info = await _server_info(asker)
        except (NotProven, Unanswered):
            if not by_probes:
                raise
            info = ServerInfo()
        differs = difference(self._own.current(name), info.fingerprint)
        if differs is None:
            return Proof(by="digest", reads_mode=info.reads_mode)
        if not by_probes or differs.reason not in PROVABLE:
            raise NotProven(*differs)
        features = await _probed(prober, info, differs)
        # A worker that does not tell its parser may have one that reads the mode.
        unsaid = worker.engine == DIGEST_ONLY and info.fingerprint is None
        return Proof(by="probes", shapes=features, reads_mode=unsaid or info.reads_mode)

    def _has_own(self, name: str) -> bool:
        """Whether it is known, or known that there will be none."""
        own = self._own
        return own.current(name) is not None or own.problem(name) is not None

    def _by_probes(self, worker: Worker) -> bool:
        if self._config.proof == "auto":
            return worker.engine != DIGEST_ONLY
        return self._config.proof == "digest-or-probe"

    def _routes(self, engine: Engine) -> list[ProbeRoute]:
        routes = engine.PROBE_ROUTES
        return [r for r in routes if self._config.probe or not r.generates]


async def _probed(
    prober: Prober, info: ServerInfo, differs: Difference
) -> frozenset[str]:
    try:
        return await prober.run()
    except ProbeFailed as error:
        if error.reason == "probe_failed" and info.fingerprint is not None:
            raise NotProven(differs.reason, error.detail) from None
        raise


async def _server_info(asker: Asker) -> ServerInfo:
    page = await asker.get("/server_info", INFO_LIMIT)
    if page.status in UNAUTHORISED:
        text = f"/server_info answers {page.status}: see --worker-api-key"
        raise NotProven("unauthorised", text)
    if page.status in (404, 405):
        return ServerInfo()
    if page.status != 200:
        raise NotProven("unreachable", f"/server_info answers {page.status}")
    try:
        return msgspec.json.decode(page.body, type=ServerInfo)
    except _UNREADABLE:
        return ServerInfo(render_fingerprint=msgspec.Raw(b"false"))


def _joined(proofs: Sequence[Proof]) -> Proof:
    """What holds for all models of a worker."""
    shapes = [proof.shapes for proof in proofs if proof.shapes is not None]
    return Proof(
        by="probes" if shapes else "digest",
        shapes=frozenset.intersection(*shapes) if shapes else None,
        reads_mode=any(proof.reads_mode for proof in proofs),
    )
