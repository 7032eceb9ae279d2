"""A body as the candidates see it: rendered by each engine's rules, cut into blocks.

Where a worker may be sent the ids, they are made ready here, too, in the same thread.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from gateway.request.splice import Edit, encoded, place
from kvindex.blocks import Namespace, chain, matchable_blocks
from kvindex.content import Content
from render import Rendered, Renderer, Unrenderable
from render.body import read_object
from render.shape import never_for, shape_of
from router.request import Forwardable, Rendering

Kind = Literal["chat", "completion", "responses"]
"""How a body is rendered."""


Ready = Mapping[str, Sequence[Rendered]]
"""Prompts that are rendered already, by profile."""
NOTHING_READY: Ready = {}
ExtraKeys = Callable[[int], Mapping[int, bytes] | None]
"""Block size -> block -> what tells equal ids apart."""

UNPLACEABLE = "ids_field"
"""The client uses the field that ids would go in."""
MODE_MARK = "think>"
"""In all marks that tell a reasoning parser its mode; also in a text about them."""


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """Whose blocks one profile's are: `root` is the hash before block 0.

    `by_history`: no event tells of such blocks. They keep their ids to `guess_in`.
    """

    root: int
    by_history: bool = False
    guess_in: Namespace | None = None


class Ids(msgspec.Struct, frozen=True, kw_only=True):
    """Ids ready to go along: as JSON, and where an engine takes them in the body."""

    edit: Edit
    encoded: bytes

    def into(self, body: bytes) -> bytes:
        """The client's body with the ids in it."""
        return self.edit.apply(body, self.encoded)


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What rendering brought: a prompt, and its blocks as the workers cut them."""

    rendered: Rendered
    blocks: dict[tuple[str, int], Rendering]
    """(profile, block size) -> blocks; without the profiles that refuse the body."""
    count: int
    """Prompts in the body; of several, this is the longest."""
    forwardable: dict[str, Forwardable] = {}
    """By profile, of those that were asked for."""
    ids: dict[str, Ids] = {}
    """By profile, where they may go along."""
    by_profile: dict[str, Rendered] = {}
    """What each profile rendered."""


def render(
    renderers: Mapping[str, Renderer],
    body: bytes,
    kind: Kind,
    *,
    keys: Iterable[tuple[str, int]],
    spaces: Mapping[str, Space],
    forward: Collection[str] = (),
    ready: Ready = NOTHING_READY,
) -> Prompt:
    """Render a body by each profile; blocks for each (profile, block size) in `keys`.

    Ids of a chat are made ready for the profiles in `forward`; prompts that are `ready`
    are not rendered again. `spaces` are by profile. Raises Unrenderable where no
    profile renders it.
    """
    given = read_object(body) if forward and kind == "chat" else None
    sizes = {of: [size for one, size in keys if one == of] for of, _ in keys}
    prompts = {
        profile: in_blocks(
            rendered, sizes.get(profile, ()), spaces[profile], profile=profile
        )
        for profile, rendered in ready.items()
    }
    refused: Unrenderable | None = None
    for profile, renderer in renderers.items():
        try:
            prompt = prompts.get(profile) or in_blocks(
                _prompts(renderer, given or body, kind),
                sizes.get(profile, ()),
                spaces[profile],
                profile=profile,
            )
        except Unrenderable as error:
            refused = refused or error
            continue
        if given is not None and profile in forward:
            prompt = _with_ids(prompt, renderer, body, given)
        prompts[profile] = prompt
    if not prompts:
        try:
            raise refused or Unrenderable("bad_prompt", "no prompt")
        finally:
            refused = None  # its traceback has this frame, and what is in it
    return _together(list(prompts.values()))


def _together(prompts: list[Prompt]) -> Prompt:
    """What is known of all profiles; the first one's prompt stands for all."""
    blocks: dict[tuple[str, int], Rendering] = {}
    forwardable: dict[str, Forwardable] = {}
    ids: dict[str, Ids] = {}
    for prompt in prompts:
        blocks |= prompt.blocks
        forwardable |= prompt.forwardable
        ids |= prompt.ids
    return msgspec.structs.replace(
        prompts[0],
        blocks=blocks,
        forwardable=forwardable,
        ids=ids,
        by_profile={prompt.rendered.profile: prompt.rendered for prompt in prompts},
    )


def _with_ids(
    prompt: Prompt, renderer: Renderer, body: bytes, given: Mapping[str, object]
) -> Prompt:
    profile = renderer.profile
    shape = shape_of(given, profile)
    never: str | None = never_for(renderer.model.model_type) or shape.never
    edit = None
    if never is None:
        edit = place(body, given, renderer.answers.ids_field)
        never = UNPLACEABLE if edit is None else None
    text = prompt.rendered.text
    forwardable = Forwardable(
        features=shape.features,
        never=never,
        shows_mode=text is None or MODE_MARK in text,
    )
    ids = {}
    if edit is not None:
        ids[profile] = Ids(edit=edit, encoded=encoded(prompt.rendered.token_ids))
    return msgspec.structs.replace(prompt, forwardable={profile: forwardable}, ids=ids)


def in_blocks(
    prompts: Sequence[Rendered],
    sizes: Iterable[int],
    space: Space,
    *,
    profile: str,
    extra_keys: ExtraKeys = lambda size: None,
) -> Prompt:
    """Prompts of one profile, of which there is one at least, cut into blocks.

    `extra_keys` are those of the blocks of a size, of media in the longest prompt.
    """
    # Several prompts go to one worker: the longest weighs most.
    longest, of = max(prompts, key=len), space.guess_in
    blocks = {
        (profile, size): Rendering(
            profile=profile,
            block_size=size,
            hashes=chain(longest.token_ids, size, space.root, extra_keys(size)),
            token_count=len(longest),
            by_history=space.by_history,
            content=None if of is None else _content(longest, size, of),
        )
        for size in sizes
    }
    return Prompt(rendered=longest, blocks=blocks, count=len(prompts))


def _content(rendered: Rendered, size: int, of: Namespace) -> Content:
    count = matchable_blocks(len(rendered), size)
    return Content(rendered.token_ids, size, count, of.adapter)


def _prompts(
    renderer: Renderer, body: bytes | Mapping[str, object], kind: Kind
) -> list[Rendered]:
    """At least one prompt."""
    if kind == "chat":
        return [renderer.render_chat(body)]
    if kind == "responses":
        return [renderer.render_responses(body)]
    return renderer.render_completion(body)
