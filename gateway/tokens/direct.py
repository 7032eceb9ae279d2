"""Calls that bring their token ids along, as the router sees them.

They pass to the worker unchanged; only where they go is decided by their ids. What
cannot be read of one is routed by load, never refused.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from gateway.request.content import content_of
from gateway.request.describe import (
    OTHER_ENDPOINT,
    SEVERAL_PROMPTS,
    Described,
    Describer,
    spaces,
)
from gateway.request.namespaces import namespaces
from gateway.request.outgoing import Outgoing
from gateway.request.peek import PROMPT_LOGPROBS, Peeked
from gateway.request.prompt import Prompt, Space, in_blocks
from gateway.request.rendering import NotRendered, RenderPool
from gateway.tokens.call_body import Body, Unreadable, fields_of
from gateway.tokens.calls import PATHS, Call, engine_of, read
from gateway.tokens.media import extra_keys
from kvindex.blocks import ID_BYTES
from render import Rendered, Unrenderable
from router.pool import WorkerPool
from router.request import Rendering, RouteRequest
from router.worker import TOKENS, Worker

ENGINES = frozenset({"vllm", "sglang", "trtllm"})
T = TypeVar("T")


class DirectCalls:
    """Describes calls by their ids; by the text, where they have one instead."""

    def __init__(
        self, pool: WorkerPool, describer: Describer, render_pool: RenderPool
    ) -> None:
        self._pool = pool
        self._describer = describer
        self._render_pool = render_pool

    async def describe(
        self, path: str, outgoing: Outgoing, peeked: Peeked
    ) -> Described:
        """A request to a path of no endpoint of ours; never raises for what is in it.

        It is a call if it is to one of `calls.PATHS`.
        """
        body = outgoing.body
        if path in PATHS and isinstance(body, bytes) and body:
            return await self._call(path, body, peeked)
        length = outgoing.length or 0
        route = self._describer.unrendered(length, peeked, OTHER_ENDPOINT)
        route = self._without(route, lambda worker: worker.api == TOKENS)
        return Described(route, uncompared=peeked.uncompared)

    async def _call(self, path: str, body: bytes, peeked: Peeked) -> Described:
        fields = Body({})
        try:
            fields = await fields_of(body)
            call = await self._done(partial(_read, path, fields), fields.size)
        except (Unreadable, NotRendered) as error:
            call = str(error)
        if isinstance(call, str):
            route = self._describer.unrendered(len(body), peeked, call)
            described = Described(route, uncompared=peeked.uncompared)
            return self._of_engine(described, engine_of(path, fields))
        peeked = msgspec.structs.replace(
            peeked,
            problem=None,
            model=call.model or peeked.model,
            cache_salt=call.salt,
            extra_key=call.extra_key,
            lora_path=call.lora_path,
            lora_request=call.lora_request,
            stream=call.stream,
            max_tokens=call.max_tokens,
            uncompared=call.uncompared,
        )
        described = await self._described(call, body, peeked, fields.size)
        return self._of_engine(described, call.engine)

    async def _described(
        self, call: Call, body: bytes, peeked: Peeked, size: int
    ) -> Described:
        if call.texts:
            return await self._describer.describe(
                call.texts, peeked, "completion", editable=False
            )
        among = namespaces(self._pool, peeked)
        keys = self._pool.rendering_keys(among.model)
        try:
            cut = partial(_in_blocks, call, keys, spaces(self._pool, among))
            prompt, content = await self._done(
                lambda: (cut(), content_of(peeked, among.of_all)), size
            )
        except NotRendered as reason:
            route = self._describer.unrendered(len(body), peeked, reason.reason)
            return Described(route, uncompared=peeked.uncompared)
        several = SEVERAL_PROMPTS if prompt.count > 1 else None
        route = RouteRequest(
            model=among.model,
            renderings=prompt.blocks,
            content=content,
            prompt_tokens=len(prompt.rendered),
            prompts=prompt.count,
            max_tokens=peeked.max_tokens,
            stream=peeked.stream,
            reads_cache=peeked.uncompared != PROMPT_LOGPROBS,
            exclude=among.without,
        )
        return Described(route, uncompared=peeked.uncompared or several)

    def _of_engine(self, described: Described, engine: str) -> Described:
        """Without workers of other engines, if not all are: they do not know such."""
        others = ENGINES - {engine}
        route = self._without(described.route, lambda worker: worker.engine in others)
        route = msgspec.structs.replace(route, no_ids=OTHER_ENDPOINT)
        return msgspec.structs.replace(described, route=route)

    def _without(
        self, route: RouteRequest, is_one: Callable[[Worker], bool]
    ) -> RouteRequest:
        """The same request for no such workers, if not all that are left are."""
        workers = self._pool.listing(route.model)
        left = [worker for worker in workers if worker.url not in route.exclude]
        found = frozenset(worker.url for worker in left if is_one(worker))
        exclude = route.exclude | (found if len(found) < len(left) else frozenset())
        return msgspec.structs.replace(route, exclude=exclude)

    async def _done(self, work: Callable[[], T], size: int) -> T:
        """What work on so many bytes brings, in a thread; raises NotRendered."""
        return await self._render_pool.run(work, size)


def _read(path: str, body: Body) -> Call | str:
    """A call, or why it is none: that is no failure of what reads it."""
    try:
        return read(path, body)
    except Unreadable as unreadable:
        return str(unreadable)


def _in_blocks(
    call: Call,
    keys: Iterable[tuple[str, int]],
    spaces: Mapping[str, Space],
) -> Prompt:
    """The prompts as each profile's workers cut them; raises Unrenderable."""
    blocks: dict[tuple[str, int], Rendering] = {}
    prompt: Prompt | None = None
    tokens = max(len(ids) for ids in call.prompts) // ID_BYTES
    try:
        for profile, size in keys:
            space = spaces[profile]
            if call.media:
                space = msgspec.structs.replace(space, guess_in=None)
            prompt = in_blocks(
                [Rendered(token_ids=ids, profile=profile) for ids in call.prompts],
                [size],
                space,
                profile=profile,
                extra_keys=lambda size: extra_keys(call.media, size, tokens),
            )
            blocks |= prompt.blocks
    except ValueError as error:
        raise Unrenderable("media", str(error)) from None
    if prompt is None:
        raise Unrenderable(
            "bad_prompt", "there are no workers to cut it into blocks for"
        )
    return msgspec.structs.replace(prompt, blocks=blocks)
