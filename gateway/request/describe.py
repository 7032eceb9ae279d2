"""A request's body -> what the router needs to know of it.

Renders, cuts into blocks and hashes, once per distinct (profile, block size) among
the candidates. Where that cannot be done, the raw content stands in (`content.py`); it
goes along with what is rendered, too, as a later turn may not be.
"""

import time
from collections.abc import Collection, Mapping
from functools import partial

import msgspec

from gateway.metrics.registry import Metrics
from gateway.models import Renderers
from gateway.request.content import BYTES_PER_TOKEN, content_of
from gateway.request.namespaces import Namespaces, namespaces
from gateway.request.peek import PROMPT_LOGPROBS, Peeked
from gateway.request.prompt import (
    NOTHING_READY,
    Ids,
    Kind,
    Prompt,
    Ready,
    Space,
    render,
)
from gateway.request.rendering import LATE, NotRendered, RenderPool
from gateway.tokens.generation import Generation
from render import Rendered
from router.forwarding import Forwarding
from router.pool import WorkerPool
from router.request import Rendering, RouteRequest

NO_MODEL = "no_model"
SWITCHED_OFF = "switched_off"
ENCODED_BODY = "encoded_body"
OTHER_ENDPOINT = "endpoint"
NOT_RENDERED = "not_rendered"
SIGNED_BODY = "signed_body"
SEVERAL_PROMPTS = "several_prompts"


class Described(msgspec.Struct, frozen=True):
    """A request as the router sees it, and the ids that may go along, by profile."""

    route: RouteRequest
    ids: dict[str, Ids] = {}
    uncompared: str | None = None
    """Why its predicted hits are not compared with what the worker reports."""
    generation: Generation | None = None
    """What it is for a worker that takes token ids only, if there is one."""
    rendered: Mapping[str, Rendered] = {}
    """The prompt by profile, only where it is to be explained: it may be large."""


class Describer:
    """Makes RouteRequests."""

    def __init__(
        self,
        *,
        pool: WorkerPool,
        renderers: Renderers,
        render_pool: RenderPool,
        metrics: Metrics,
        render: bool,
        forwarding: Forwarding,
    ) -> None:
        self._pool = pool
        self._renderers = renderers
        self._render_pool = render_pool
        self._metrics = metrics
        self._rendering = render
        self._forwarding = forwarding

    @property
    def models_differ(self) -> bool:
        """Whether it matters to which model a request is."""
        return self._pool.models_differ

    async def describe(
        self,
        body: bytes,
        peeked: Peeked,
        kind: Kind,
        *,
        counted: bool = True,
        editable: bool = True,
        ready: Ready = NOTHING_READY,
        ready_s: float = 0.0,
    ) -> Described:
        """Describe an inference request; never raises for what is in it.

        Its times go into the metrics if `counted`; ids may go along if `editable`.
        Prompts that are `ready`, which took `ready_s`, are not rendered again.
        """
        if peeked.problem is not None:
            return Described(self.unrendered(len(body), peeked, peeked.problem))
        among = namespaces(self._pool, peeked)
        forward, no_ids = self._offer(among.model, kind, editable=editable)
        begun = time.perf_counter()
        try:
            prompt, content = await self._render(
                body, peeked, among, kind, forward, ready
            )
        except NotRendered as reason:
            if counted and reason.reason == LATE:
                self._metrics.render_seconds.observe(time.perf_counter() - begun)
            route = self.unrendered(len(body), peeked, reason.reason)
            return Described(route, uncompared=peeked.uncompared)
        if counted:
            self._count(prompt.rendered, ready_s + time.perf_counter() - begun)
        several = SEVERAL_PROMPTS if prompt.count > 1 else None
        return Described(
            _route(peeked, among, prompt, content, no_ids),
            prompt.ids,
            peeked.uncompared or several,
            rendered={} if counted else prompt.by_profile,
        )

    def unrendered(self, size: int, peeked: Peeked, reason: str) -> RouteRequest:
        """Describe a body of `size` bytes by its raw content, if it shows any."""
        among = namespaces(self._pool, peeked)
        return RouteRequest(
            model=among.model,
            content=content_of(peeked, among.of_all),
            prompt_tokens=size // BYTES_PER_TOKEN,
            max_tokens=_output_limit(peeked),
            stream=peeked.stream,
            not_rendered=reason,
            no_ids=OTHER_ENDPOINT if reason == OTHER_ENDPOINT else NOT_RENDERED,
            exclude=among.without,
        )

    def _offer(
        self, model: str | None, kind: Kind, *, editable: bool
    ) -> tuple[frozenset[str], str | None]:
        """The profiles whose ids may go along, or why none may, whatever the body."""
        if kind != "chat":
            return frozenset(), OTHER_ENDPOINT
        if not editable:
            return frozenset(), SIGNED_BODY
        return self._forwarding.offer(model)

    def _count(self, rendered: Rendered, took_s: float) -> None:
        self._metrics.render_seconds.observe(took_s)
        if rendered.tokenize_s:  # else its parts were not timed
            self._metrics.template_seconds.observe(rendered.template_s)
            self._metrics.tokenize_seconds.observe(rendered.tokenize_s)

    async def _render(
        self,
        body: bytes,
        peeked: Peeked,
        among: Namespaces,
        kind: Kind,
        forward: Collection[str],
        ready: Ready,
    ) -> tuple[Prompt, Rendering | None]:
        if not self._rendering:
            raise NotRendered(SWITCHED_OFF)
        keys = self._pool.rendering_keys(among.model)
        renderers = {}
        for profile in sorted({profile for profile, _ in keys}):
            base = among.by_profile[profile].model
            found = self._renderers.find(among.model, base, profile)
            if found is not None:
                renderers[profile] = found
        if not renderers and not ready:
            raise NotRendered(NO_MODEL)
        prompt = partial(
            render,
            renderers,
            body,
            kind,
            keys=keys,
            spaces=spaces(self._pool, among),
            forward=forward,
            ready=ready,
        )
        # Hashing, too, is done in the thread: a million tokens take ten milliseconds.
        return await self._render_pool.run(
            lambda: (prompt(), content_of(peeked, among.of_all)), len(body)
        )


def spaces(pool: WorkerPool, among: Namespaces) -> dict[str, Space]:
    """By profile, whose blocks those of a body are."""
    of = {
        namespace: Space(
            root=namespace.root(),
            by_history=namespace.untold is not None,
            guess_in=pool.guessable(among.model, namespace),
        )
        for namespace in set(among.by_profile.values())
    }
    return {profile: of[namespace] for profile, namespace in among.by_profile.items()}


def kind_of(peeked: Peeked) -> Kind | None:
    """What a body is, by what it asks with; None where that is missing."""
    kinds: tuple[tuple[msgspec.Raw | None, Kind], ...] = (
        (peeked.messages, "chat"),
        (peeked.prompt, "completion"),
        (peeked.input, "responses"),
    )
    return next((kind for asked, kind in kinds if asked is not None), None)


def _route(
    peeked: Peeked,
    among: Namespaces,
    prompt: Prompt,
    content: Rendering | None,
    no_ids: str | None,
) -> RouteRequest:
    return RouteRequest(
        model=among.model,
        renderings=prompt.blocks,
        content=content,
        prompt_tokens=len(prompt.rendered),
        prompts=prompt.count,
        max_tokens=_output_limit(peeked),
        stream=peeked.stream,
        reads_cache=peeked.uncompared != PROMPT_LOGPROBS,
        forwardable=prompt.forwardable,
        no_ids=no_ids,
        exclude=among.without,
    )


def _output_limit(peeked: Peeked) -> int | None:
    newer = peeked.max_completion_tokens
    return newer if newer is not None else peeked.max_tokens
