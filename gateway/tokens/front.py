"""What a request needs where workers for its model take token ids only.

It is rendered then whatever it takes, as nothing else can be sent to such a worker.
What cannot be rendered goes to the other workers, or is refused in an engine's words.
"""

import time
from collections.abc import Callable

import msgspec

from gateway.endpoints.render_services import RenderServices
from gateway.errors import BodyTooLarge, GatewayError, RenderBusy, RenderTimeout
from gateway.models import Renderers
from gateway.request.describe import Described, Describer
from gateway.request.peek import Peeked
from gateway.request.prompt import NOTHING_READY, Kind
from gateway.settings.config import Config
from gateway.threads import Late, QueueFull, Threads
from gateway.tokens.generation import Generation, Prompted, prepare
from render import Rendered, RenderRefused
from router.pool import WorkerPool
from router.request import RouteRequest
from router.worker import TOKENS

PROFILE = "vllm"
"""Whose rules the generate route stands under."""
ENCODED = (
    "The body has a content encoding: it cannot be rendered for workers that take "
    "token ids only."
)


class NotForTokens(GatewayError):
    """No worker can answer: those there are take ids, and this cannot be rendered."""

    status = 400
    type = "invalid_request_error"
    code = "not_rendered"

    def __init__(self, refused: RenderRefused) -> None:
        super().__init__(refused.message, param=refused.param)
        self.status = refused.status
        self._refused = refused

    def body(self) -> bytes:
        """As the engine words it."""
        return msgspec.json.encode(self._refused.body("vllm"))


class TokensFront:
    """Renders what is to go to workers that take ids, and describes it by these."""

    def __init__(
        self,
        config: Config,
        *,
        pool: WorkerPool,
        renderers: Renderers,
        max_model_len: Callable[[str], int | None],
        describer: Describer,
        threads: Threads,
    ) -> None:
        """`max_model_len` is what the workers say of a model; the `threads` render."""
        own = msgspec.structs.replace(config, profile=PROFILE, render_dialect="union")
        self._services = RenderServices(own, pool, renderers, max_model_len)
        self._pool = pool
        self._describer = describer
        self._threads = threads
        self._max_bytes = config.max_render_bytes

    async def describe(
        self,
        body: bytes,
        peeked: Peeked,
        kind: Kind,
        *,
        editable: bool,
        request_id: bytes,
    ) -> Described:
        """A request as the router sees it, with what goes to a worker that takes ids.

        Raises GatewayError where there are no others, and it cannot be rendered.
        """
        generation: Generation | None = None
        ready, without = NOTHING_READY, frozenset[str]()
        begun = time.perf_counter()
        if self._takers(peeked.model):
            try:
                generation = await self._prepare(body, peeked, kind, request_id)
                ready = {PROFILE: [_rendered(one) for one in generation.prompts]}
            except GatewayError:
                if not self._has_others(peeked.model):
                    raise
                without = self._takers(peeked.model)
        described = await self._describer.describe(
            body,
            peeked,
            kind,
            editable=editable,
            ready=ready,
            ready_s=time.perf_counter() - begun if ready else 0.0,
        )
        route = msgspec.structs.replace(
            described.route, exclude=described.route.exclude | without
        )
        return msgspec.structs.replace(described, route=route, generation=generation)

    def unread(self, route: RouteRequest) -> RouteRequest:
        """A request whose body cannot be read here goes to workers that can."""
        takers = self._takers(route.model)
        if not takers:
            return route
        if not self._has_others(route.model):
            raise NotForTokens(RenderRefused(ENCODED))
        return msgspec.structs.replace(route, exclude=route.exclude | takers)

    def _takers(self, model: str | None) -> frozenset[str]:
        """The URLs of the workers for a model that take ids only."""
        workers = self._pool.listing(model)
        return frozenset(worker.url for worker in workers if worker.api == TOKENS)

    def _has_others(self, model: str | None) -> bool:
        """Whether workers for a model take more than ids."""
        return len(self._takers(model)) < len(self._pool.listing(model))

    async def _prepare(
        self, body: bytes, peeked: Peeked, kind: Kind, request_id: bytes
    ) -> Generation:
        if len(body) > self._max_bytes:
            raise BodyTooLarge(
                f"a body above {self._max_bytes} bytes is not rendered: see "
                "--max-render-bytes"
            )
        try:
            service = self._services.of(peeked.model)
            name = request_id.decode("ascii")
            return await self._threads.run(lambda: prepare(service, body, kind, name))
        except RenderRefused as refused:
            raise NotForTokens(refused) from None
        except QueueFull:
            raise RenderBusy("too many requests wait to be rendered") from None
        except Late:
            raise RenderTimeout("the request was not rendered in time") from None


def _rendered(prompt: Prompted) -> Rendered:
    return Rendered(token_ids=prompt.token_ids, profile=PROFILE, text=prompt.text)
