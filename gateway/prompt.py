"""A body as the candidates see it: rendered by each engine's rules, cut into blocks."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from kvindex.blocks import chain
from render import Rendered, Renderer, Unrenderable
from router.request import Rendering

Kind = Literal["chat", "completion", "responses"]
"""How a body is rendered."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What rendering brought: a prompt, and its blocks as the workers cut them."""

    rendered: Rendered
    blocks: dict[tuple[str, int], Rendering]
    """(profile, block size) -> blocks; without the profiles that refuse the body."""
    count: int
    """Prompts in the body; of several, this is the longest."""


def render(
    renderers: Mapping[str, Renderer],
    body: bytes,
    kind: Kind,
    *,
    keys: Iterable[tuple[str, int]],
    root: int,
) -> Prompt:
    """Render a body by each profile; blocks for each (profile, block size) in `keys`.

    Raises Unrenderable where no profile renders it.
    """
    prompts: dict[str, Prompt] = {}
    refused: Unrenderable | None = None
    for profile, renderer in renderers.items():
        sizes = [size for of, size in keys if of == profile]
        try:
            prompts[profile] = _one(renderer, body, kind, sizes, root)
        except Unrenderable as error:
            refused = refused or error
    if not prompts:
        raise refused or Unrenderable("bad_prompt", "no prompt")
    first = next(iter(prompts.values()))
    together = {
        key: blocks
        for prompt in prompts.values()
        for key, blocks in prompt.blocks.items()
    }
    return msgspec.structs.replace(first, blocks=together)


def _one(
    renderer: Renderer, body: bytes, kind: Kind, sizes: Iterable[int], root: int
) -> Prompt:
    prompts = _prompts(renderer, body, kind)
    # Several prompts go to one worker: the longest weighs most.
    longest = max(prompts, key=len)
    profile = renderer.profile
    blocks = {
        (profile, size): Rendering(
            profile=profile,
            block_size=size,
            hashes=chain(longest.token_ids, size, root),
            token_count=len(longest),
        )
        for size in sizes
    }
    return Prompt(rendered=longest, blocks=blocks, count=len(prompts))


def _prompts(renderer: Renderer, body: bytes, kind: Kind) -> list[Rendered]:
    """At least one prompt."""
    if kind == "chat":
        return [renderer.render_chat(body)]
    if kind == "responses":
        return [renderer.render_responses(body)]
    return renderer.render_completion(body)
