"""Calls that bring their token ids along, as the router sees them.

They pass to the worker unchanged; only where they go is decided by their ids. What
cannot be read of one is routed by load, never refused.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

import msgspec

from gateway.request.content import content_of
from gateway.request.describe import (
    OTHER_ENDPOINT,
    SEVERAL_PROMPTS,
    Described,
    Describer,
)
from gateway.request.outgoing import Outgoing
from gateway.request.peek import PROMPT_LOGPROBS, Peeked
from gateway.request.prompt import Prompt, in_blocks
from gateway.request.rendering import NotRendered, RenderPool
from gateway.tokens.calls import (
    PATHS,
    Body,
    Call,
    Unreadable,
    engine_of,
    fields_of,
    read,
)
from gateway.tokens.media import extra_keys
from kvindex.blocks import ID_BYTES, Namespace
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
        without = self._unless_all(peeked.model, lambda worker: worker.api == TOKENS)
        route = msgspec.structs.replace(route, exclude=without)
        return Described(route, uncompared=peeked.uncompared)

    async def _call(self, path: str, body: bytes, peeked: Peeked) -> Described:
        fields: Body | None = None
        try:
            fields = await fields_of(body)
            call = await self._done(partial(_read, path, fields))
        except (Unreadable, NotRendered) as error:
            call = str(error)
        if isinstance(call, str):
            route = self._describer.unrendered(len(body), peeked, call)
            described = Described(route, uncompared=peeked.uncompared)
            return self._of_engine(described, peeked.model, engine_of(path, fields))
        model = call.model or peeked.model
        peeked = msgspec.structs.replace(
            peeked,
            problem=None,
            model=model,
            cache_salt=call.salt,
            stream=call.stream,
            max_tokens=call.max_tokens,
            uncompared=call.uncompared,
        )
        described = await self._described(call, body, peeked)
        return self._of_engine(described, model, call.engine)

    async def _described(self, call: Call, body: bytes, peeked: Peeked) -> Described:
        if call.texts:
            asked = msgspec.json.encode({"prompt": [*call.texts]})
            return await self._describer.describe(
                asked, peeked, "completion", editable=False
            )
        namespace = self._namespace(call, peeked)
        keys = self._pool.rendering_keys(peeked.model)
        try:
            guess_in = self._pool.guessable(peeked.model, namespace)
            cut = partial(_in_blocks, call, keys, namespace, guess_in)
            raw = self._pool.resolve(peeked.model, peeked.cache_salt)
            prompt, content = await self._done(lambda: (cut(), content_of(peeked, raw)))
        except NotRendered as reason:
            route = self._describer.unrendered(len(body), peeked, reason.reason)
            return Described(route, uncompared=peeked.uncompared)
        several = SEVERAL_PROMPTS if prompt.count > 1 else None
        route = RouteRequest(
            model=peeked.model,
            renderings=prompt.blocks,
            content=content,
            prompt_tokens=len(prompt.rendered),
            prompts=prompt.count,
            max_tokens=peeked.max_tokens,
            stream=peeked.stream,
            reads_cache=peeked.uncompared != PROMPT_LOGPROBS,
        )
        return Described(route, uncompared=peeked.uncompared or several)

    def _namespace(self, call: Call, peeked: Peeked) -> Namespace:
        found = self._pool.resolve(peeked.model, call.salt)
        if call.adapter is None:
            return found
        return msgspec.structs.replace(found, adapter=call.adapter)

    def _of_engine(
        self, described: Described, model: str | None, engine: str
    ) -> Described:
        """Without workers of other engines, if not all are: they do not know such."""
        others = ENGINES - {engine}
        without = self._unless_all(model, lambda worker: worker.engine in others)
        route = msgspec.structs.replace(
            described.route, exclude=without, no_ids=OTHER_ENDPOINT
        )
        return msgspec.structs.replace(described, route=route)

    def _unless_all(
        self, model: str | None, is_one: Callable[[Worker], bool]
    ) -> frozenset[str]:
        """The workers for a model that are such ones; none of them if all are."""
        workers = self._pool.listing(model)
        found = [worker.url for worker in workers if is_one(worker)]
        return frozenset(found if len(found) < len(workers) else ())

    async def _done(self, work: Callable[[], T]) -> T:
        """What work on ids brings, in a thread: many take some milliseconds."""
        return await self._render_pool.run(work, 0)


def _read(path: str, body: Body) -> Call | str:
    """A call, or why it is none: that is no failure of what reads it."""
    try:
        return read(path, body)
    except Unreadable as unreadable:
        return str(unreadable)


def _in_blocks(
    call: Call,
    keys: Iterable[tuple[str, int]],
    namespace: Namespace,
    guess_in: Namespace | None,
) -> Prompt:
    """The prompts as each profile's workers cut them; raises Unrenderable."""
    root = namespace.root()
    blocks: dict[tuple[str, int], Rendering] = {}
    prompt: Prompt | None = None
    tokens = max(len(ids) for ids in call.prompts) // ID_BYTES
    try:
        for profile, size in keys:
            prompt = in_blocks(
                [Rendered(token_ids=ids, profile=profile) for ids in call.prompts],
                [size],
                root,
                profile=profile,
                extra_keys=lambda size: extra_keys(call.media, size, tokens),
                guess_in=None if call.media else guess_in,
            )
            blocks |= prompt.blocks
    except ValueError as error:
        raise Unrenderable("media", str(error)) from None
    if prompt is None:
        raise Unrenderable(
            "bad_prompt", "there are no workers to cut it into blocks for"
        )
    return msgspec.structs.replace(prompt, blocks=blocks)
