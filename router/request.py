"""What the router is told about a request, and what a worker reports at its end.

Records only. A request is described by its block hashes, never by its text: the
gateway renders and hashes, the router compares.
"""

from collections.abc import Mapping, Sequence

import msgspec

from kvindex.blocks import matchable_blocks
from kvindex.content import Content

CONTENT_PIECE_BYTES = 256
"""Raw content is cut into pieces of this size where a request was not rendered."""

CONTENT_PIECE_TOKENS = 64
"""Estimated tokens of one piece: about four bytes a token."""


class Rendering(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt as the workers of one profile and block size see it.

    `hashes` are the chained hashes of its full blocks (`kvindex.blocks.chain`), from
    block 0; `token_count` counts the whole prompt, its last partial block included.
    `estimated` marks pseudo blocks cut from raw content: `token_count` is a guess.
    The `content` of its matchable blocks is there only where a worker has orphans.
    `by_history`: no event tells of such blocks, as its namespace has something untold.
    """

    profile: str
    block_size: int
    hashes: Sequence[int]
    token_count: int
    estimated: bool = False
    by_history: bool = False
    content: Content | None = None

    def matchable(self) -> Sequence[int]:
        """The hashes a worker can find cached: never the whole prompt."""
        limit = matchable_blocks(self.token_count, self.block_size)
        return self.hashes if len(self.hashes) <= limit else self.hashes[:limit]


class Forwardable(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether the ids of one profile may go along; not the ids.

    `features` are those of its shape (`render.shape`), `never` is why ids are never
    sent with this request, and `shows_mode` whether the prompt's text has marks that
    tell a reasoning parser its mode.
    """

    features: frozenset[str] = frozenset()
    never: str | None = None
    shows_mode: bool = False


class RouteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a decision.

    `renderings` maps (profile, block size) to the prompt as those workers see it, and
    is empty where the request was not rendered (`not_rendered` says why); then
    `content`, pseudo blocks of the raw body, stands in. Where it was, `content` is only
    noted, for a later turn that may not be. Of several `prompts` (a list in
    a completion) the longest is the one described. `prompt_tokens` is the size
    where neither is known, estimated by bytes / 4. `exclude` names the URLs of workers
    already tried. `rank` is a data-parallel rank the client chose; where no worker has
    it, it is the worker's to refuse. Where `reads_cache` is False the worker computes
    the whole prompt anew, whatever it holds of it. `session` names what it belongs to,
    if the client said. `worker` is the URL of the only worker that can answer, if there
    is one. `sought` is the id of what it is about, where it is not known which of the
    workers left has that. `forwardable` has the profiles whose ids are at hand;
    `no_ids` says in a word why not more.
    """

    model: str | None = None
    renderings: Mapping[tuple[str, int], Rendering] = {}
    content: Rendering | None = None
    prompt_tokens: int = 0
    prompts: int = 1
    max_tokens: int | None = None
    stream: bool = False
    not_rendered: str | None = None
    exclude: frozenset[str] = frozenset()
    rank: int | None = None
    reads_cache: bool = True
    session: str | None = None
    worker: str | None = None
    sought: bytes | None = None
    forwardable: Mapping[str, Forwardable] = {}
    no_ids: str | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts a worker reported. `cached_tokens` is None where it did not say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
