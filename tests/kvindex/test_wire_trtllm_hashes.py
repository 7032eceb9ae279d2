"""TensorRT-LLM's block names: golden vectors, and which name is of a base block.

The first three vectors are numbers that a real TensorRT-LLM printed.
"""

import pytest

from kvindex.events import EngineHash
from kvindex.wire.trtllm_hashes import (
    V1,
    V2,
    V2_64,
    is_base,
    salt_id,
    v1_block_key,
    v2_root,
    v2_sha256,
    v2_sha256_64,
)

FIRST, SECOND = [1, 2, 3, 4], [5, 6, 7, 8]
SALT = salt_id("tenant-a")


def test_golden_vectors_of_v1() -> None:
    """Tokens 1..4 and 5..8, blocks of 4."""
    assert v1_block_key(FIRST) == 924206229973855
    assert v1_block_key(FIRST, adapter=7) == 1405807694910447675
    assert SALT == 16248643848220682112
    assert v1_block_key(SECOND, 924206229973855) == 2728178455351807326
    assert v1_block_key(FIRST, salt=SALT) == 8961321873627678067


def test_golden_vectors_of_v2() -> None:
    """Digests, and their short form."""
    root = v2_root()
    block = v2_sha256(FIRST, root)
    after = v2_sha256(SECOND, block)
    assert root.hex() == (
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    )
    assert block.hex() == (
        "e432228522a304ab556d66e6e40979ad05575f28b19b554264dd3c6277aaf073"
    )
    assert after.hex() == (
        "756b1d258c63ccc0cbd6284ab33b043c81175086163f9d2821f5764079efb75c"
    )
    assert v2_sha256_64(block) == 16443243144690205867
    assert v2_sha256_64(after) == 8460888372051954880
    assert v2_root(salt=SALT).hex() == (
        "ceb640ee7c220334c7d84519e6d26f378de1afb061d8427adbcd3d1891662359"
    )
    assert v2_root(adapter=7).hex() == (
        "bf20e9c9b8addef74f91d399e9ebb5bc7778de38c127e968d34d1ba3dea17cb2"
    )


def names(adapter: int | None = None, salt: int | None = None) -> list[EngineHash]:
    """The name of the first block, in every recipe and spelling."""
    key = v1_block_key(FIRST, adapter=adapter, salt=salt)
    digest = v2_sha256(FIRST, v2_root(adapter=adapter, salt=salt))
    return [key, key.to_bytes(8, "big"), digest, digest[:8], v2_sha256_64(digest)]


@pytest.mark.parametrize("spelling", range(5))
def test_base_blocks_are_recognised(spelling: int) -> None:
    """And those of an adapter or of a salt are not, unless the salt is told."""
    assert is_base(names()[spelling], FIRST, None)
    assert not is_base(names(adapter=7)[spelling], FIRST, None)
    assert not is_base(names(salt=SALT)[spelling], FIRST, None)
    assert is_base(names(salt=SALT)[spelling], FIRST, None, salt="tenant-a")
    assert not is_base(names(adapter=7, salt=SALT)[spelling], FIRST, None)
    assert not is_base(names()[spelling], SECOND, None)


def test_a_known_algorithm_is_the_only_one() -> None:
    """An unknown one names no block that we would know."""
    key, _, digest, _, short = names()
    assert is_base(key, FIRST, None, algorithm=V1)
    assert not is_base(key, FIRST, None, algorithm=V2)
    assert is_base(digest, FIRST, None, algorithm=V2)
    assert is_base(short, FIRST, None, algorithm=V2_64)
    assert not is_base(short, FIRST, None, algorithm=V1)
    assert not is_base(key, FIRST, None, algorithm="v9")


def test_blocks_behind_others() -> None:
    """Checked where the parent's name suffices for it."""
    key, _, digest, _, short = names()
    after = v1_block_key(SECOND, v1_block_key(FIRST))
    assert is_base(after, SECOND, key, algorithm=V1)
    assert not is_base(after + 1, SECOND, key, algorithm=V1)
    assert not is_base(after, SECOND, b"\x01", algorithm=V1)
    assert is_base(v2_sha256(SECOND, v2_sha256(FIRST, v2_root())), SECOND, digest)
    assert not is_base(b"d" * 32, SECOND, digest)
    assert is_base(12345, SECOND, short, algorithm=V2_64)
