"""TensorRT-LLM's block hashes, those its KV events carry, by one of its recipes."""

from collections.abc import Sequence

from kvindex.events import EngineHash
from kvindex.wire import trtllm_hashes as recipes
from simworker.hashing import Digest, Identity

LATER = "v9_of_a_later_release"
"""A recipe that nobody knows yet."""
ALGORITHMS = (recipes.V1, recipes.V2, recipes.V2_64, LATER)

_WORD = 8


class BlockKeys:
    """Hashes of one worker, by the algorithm it is told."""

    lookahead = 0

    def __init__(self, algorithm: str = recipes.V1) -> None:
        if algorithm not in ALGORITHMS:
            raise ValueError(f"no hash algorithm {algorithm!r}")
        self.algorithm = algorithm

    def link(
        self,
        parent: Digest | None,
        token_ids: Sequence[int],
        identity: Identity,
        number: int,
    ) -> Digest:
        """The digest of a block: 8 bytes by the first recipe, else 32."""
        adapter = identity.adapter_id
        salt = None if identity.salt is None else recipes.salt_id(identity.salt)
        if self.algorithm == recipes.V1:
            before = 0 if parent is None else int.from_bytes(parent)
            key = recipes.v1_block_key(token_ids, before, adapter=adapter, salt=salt)
            return key.to_bytes(_WORD)
        if parent is None:
            parent = recipes.v2_root(adapter=adapter, salt=salt)
        digest = recipes.v2_sha256(token_ids, parent)
        return digest[::-1] if self.algorithm == LATER else digest

    def event_value(self, digest: Digest) -> EngineHash:
        """What an event carries: an unsigned integer, or the digest (told in hex)."""
        return (
            digest if self.algorithm == recipes.V2 else int.from_bytes(digest[:_WORD])
        )
