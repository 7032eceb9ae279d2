"""Times and bounds of a feed."""

import msgspec


class FeedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds; `orphan_blocks` bounds what is kept without its parent.

    A replay may take `replay_limit_s`; after one that did not end in time none is
    wanted for `replay_pause_s`.
    """

    suspect_ttl_s: float = 600.0
    silent_after_s: float = 10.0
    replay_limit_s: float = 30.0
    replay_pause_s: float = 30.0
    orphan_blocks: int = 8_192
