"""TensorRT-LLM's block hashes: its own numbers, by each of its recipes."""

import pytest

from kvindex.events import EngineHash
from simworker.hashing import Identity
from simworker.trtllm.hashing import ALGORITHMS, LATER, BlockKeys

FIRST, SECOND = [1, 2, 3, 4], [5, 6, 7, 8]
SALT = Identity(salt="tenant-a")
ADAPTER = Identity(adapter="fr", adapter_id=7)
DIGESTS = [
    "e432228522a304ab556d66e6e40979ad05575f28b19b554264dd3c6277aaf073",
    "756b1d258c63ccc0cbd6284ab33b043c81175086163f9d2821f5764079efb75c",
]


@pytest.mark.parametrize(
    ("algorithm", "identity", "values"),
    [
        ("v1_block_key", Identity(), [924206229973855, 2728178455351807326]),
        ("v1_block_key", ADAPTER, [1405807694910447675]),
        ("v1_block_key", SALT, [8961321873627678067]),
        ("v2_sha256", Identity(), [bytes.fromhex(text) for text in DIGESTS]),
        ("v2_sha256_64", Identity(), [16443243144690205867, 8460888372051954880]),
    ],
)
def test_golden_vectors(
    algorithm: str, identity: Identity, values: list[EngineHash]
) -> None:
    """The first of them were printed by a real worker."""
    hasher, digest = BlockKeys(algorithm), None
    for number, value in enumerate(values):
        digest = hasher.link(digest, (FIRST, SECOND)[number], identity, number)
        assert hasher.event_value(digest) == value


def test_a_later_recipe() -> None:
    """Its names are none of those known."""
    hasher, known = BlockKeys(LATER), [BlockKeys(name) for name in ALGORITHMS[:3]]
    digest = hasher.link(None, FIRST, Identity(), 0)
    others = {keys.event_value(keys.link(None, FIRST, Identity(), 0)) for keys in known}
    assert hasher.event_value(digest) not in others
    assert hasher.link(digest, SECOND, Identity(), 1) != digest


def test_an_unknown_recipe() -> None:
    """It is refused."""
    with pytest.raises(ValueError, match="no hash algorithm 'v3'"):
        BlockKeys("v3")
