"""Which service answers a render request on the front door: by model and profile.

Models are those that workers list and those that `--model` names. What a model's
render endpoints follow (its profile) is decided once, so that answers do not change
with the fleet: when the gateway has a ready worker for it.
"""

import logging
from collections.abc import Callable, Iterable
from weakref import WeakKeyDictionary

import msgspec

from gateway.models import Renderers
from gateway.request.peek import peek
from gateway.settings.config import Config
from gateway.settings.shared_config import DEFAULT_PROFILE
from render import RenderOptions, RenderRefused, RenderService
from render.refused import unknown_model
from router.pool import WorkerPool
from router.worker import Worker, WorkerState

log = logging.getLogger(__name__)

KEPT = 1024
"""Services kept for further requests: one for each name in use."""


class _Key(msgspec.Struct, frozen=True):
    """What a service depends on, beyond the options."""

    model: str
    profile: str
    max_model_len: int | None


class RenderServices:
    """The services of the fleet's models, made when they are first asked."""

    def __init__(
        self,
        config: Config,
        pool: WorkerPool,
        renderers: Renderers,
        max_model_len: Callable[[str], int | None],
    ) -> None:
        """`max_model_len` is what the workers say of a model."""
        self._config = config
        self._pool = pool
        self._renderers = renderers
        self._max_model_len = max_model_len
        self._services: dict[_Key, RenderService] = {}
        self._profiles: dict[str, str] = {}
        self._different: WeakKeyDictionary[Worker, set[str]] = WeakKeyDictionary()

    async def find(self, body: bytes) -> RenderService:
        """The service of a body's model, the first one's where it names none.

        Raises RenderRefused for a model that is not served or not rendered here.
        """
        return self.of((await peek(body)).model)

    def of(self, model: str | None) -> RenderService:
        """The service of a model; raises RenderRefused."""
        known = self._names()
        if not model:
            model = next(iter(known), "")
        elif known and model not in known:
            raise unknown_model(model, list(known))
        base = self._pool.resolve(model).model
        profile = self._profile(base)
        renderer = self._renderers.find(model, base, profile)
        if renderer is None:
            workers = self._pool.workers
            all_join = all(each.state is WorkerState.joining for each in workers)
            raise _not_known_yet() if not known and all_join else _not_rendered(model)
        listed = self._max_model_len(model) or self._max_model_len(base)
        limit = self._config.max_model_len or listed or renderer.model.max_length
        key = _Key(model, profile, limit)
        service = self._services.get(key)
        if service is None:
            service = RenderService(renderer, self._options(key))
            if len(self._services) >= KEPT:
                self._services.clear()
            self._services[key] = service
        return service

    def models(self) -> list[str]:
        """The models by their base names; the rendered one where none has a name."""
        listed = [
            name.base for worker in self._pool.workers for name in worker.names.values()
        ]
        names = dict.fromkeys([*listed, *self._renderers.names])
        return list(names) or [r.model.name for r in self._renderers.loaded]

    def _options(self, key: _Key) -> RenderOptions:
        config = self._config
        return RenderOptions(
            served_model_names=(key.model,),
            max_model_len=key.max_model_len,
            reasoning_parser=config.reasoning_parser,
            tool_call_parser=config.tool_call_parser,
            trust_request_chat_template=config.trust_request_chat_template,
            dialect=config.render_dialect,
        )

    def _names(self) -> dict[str, None]:
        """Every model name there is, in the workers' order; {}: any is taken."""
        listed = [name for worker in self._pool.workers for name in worker.names]
        return dict.fromkeys([*listed, *self._renderers.names])

    def settle(self, worker: Worker) -> None:
        """Decide the profiles of the models of a ready worker, or say it differs."""
        if self._config.profile != "auto":
            return
        said = self._different.setdefault(worker, set())
        for base in dict.fromkeys(name.base for name in worker.names.values()):
            profile = self._profile(base)
            if worker.profile != profile and base not in said:
                said.add(base)
                log.warning(
                    "worker %s renders as %s: the render endpoints of %s follow %s; "
                    "--profile %s changes that",
                    worker.url,
                    worker.profile,
                    base,
                    profile,
                    worker.profile,
                )

    def _profile(self, base: str) -> str:
        if self._config.profile != "auto":
            return self._config.profile
        settled = self._profiles.get(base)
        if settled is not None:
            return settled
        ready = [worker for worker in self._pool.workers if _is_ready(worker, base)]
        profiles = {worker.profile for worker in ready}
        profile = profiles.pop() if len(profiles) == 1 else DEFAULT_PROFILE
        if ready:
            self._profiles[base] = profile
        return profile


def _not_rendered(model: str) -> RenderRefused:
    return RenderRefused(
        f"The model `{model}` is not rendered here: "
        f"start the gateway with --model {model}=DIR_OR_ID."
        if model
        else "No model is rendered here: start the gateway with --model DIR_OR_ID.",
        status=404,
        type="NotFoundError",
        param="model",
    )


def _not_known_yet() -> RenderRefused:
    return RenderRefused(
        "No worker has told its models yet: ask again when one is ready, "
        "or start the gateway with --model DIR_OR_ID.",
        status=503,
        type="service_unavailable",
    )


def _is_ready(worker: Worker, base: str) -> bool:
    names: Iterable[str] = (name.base for name in worker.names.values())
    return worker.state is WorkerState.ready and base in names
