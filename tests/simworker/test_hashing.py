"""The simulated worker's block hashes are vLLM's."""

import hashlib

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simworker.hashing import BlockHasher, Identity, canonical_cbor

FIRST, SECOND = list(range(1, 17)), list(range(17, 33))
SALTED = Identity(salt="tenant-a")
# (algorithm, seed, identity): root, block 0, block 1 and their event integers
VECTORS = [
    (
        "sha256_cbor", "0", Identity(),
        "202da172482d928bbc42ab25b0151e2b895f13f41002e27b2ceabcfae6d332ea",
        3236607068019569386,
        "4a0a393805c6d2f0ed831000d41bb65980336c4c04895d5e26470bbec927f5bf",
        2758186210834249151,
    ),
    (
        "sha256_cbor", "vllm-none-hash", Identity(),
        "cd7c51bc5a8fc8643f383a2b9e01522fba7473c669e9270c7b0bf7bf7fd01682",
        8866452693264111234,
        "2533ea50426b36e9e4d68296cac6bce8cf602e46957d0fe40b368b33d87bf3bf",
        807986237951177663,
    ),
    (
        "sha256", "0", Identity(),
        "bea72b7d33de03c1aa715efbb492d0e0d3801f00c1f985756896072ae8b31325",
        7536218907325174565,
        "2744667f6645310ff670b0c5d7c64987ffa5940de5a549f17d92dcbb5b559e31",
        9048537298590080561,
    ),
    (
        "sha256", "vllm-none-hash", Identity(),
        "7b255da405e1d722823892e4fef187b4d8ac78215d7f0dd2137bb037547f4caf",
        1403909460543360175,
        "8e717becdc2054b7a3223b7b844f462c0db0ac86287b752b16d077ad0843c577",
        1643945449041937783,
    ),
    (
        "sha256_cbor", "vllm-none-hash", SALTED,
        "d4fdd9f3dab139eafd01550f43781481256e9531b59b55ea4656df8f49124fcf",
        5068484237151326159,
        "2f4337ba796128f8f0f3e95e4b2e30a948abce017020918ad1ce0a6828f9edc7",
        15118032441609678279,
    ),
    (
        "sha256", "vllm-none-hash", SALTED,
        "67b47fff1fdd4b5d223a715393ac45d1f1159748b35948c1cc5af6f21812adb0",
        14725353451287653808,
        "c95bea24a5e5b77ca1ef0ac100eaf16646db162490a5668ca214b8232315c4d9",
        11679162194730534105,
    ),
]  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS)
def test_golden_vectors(
    vector: tuple[str, str, Identity, str, int, str, int],
) -> None:
    """Two blocks hash to what real workers published (or the formula gives)."""
    algorithm, seed, identity, digest0, value0, digest1, value1 = vector
    hasher = BlockHasher(algorithm, seed=seed)
    first = hasher.block(hasher.root, FIRST, identity.hashed_keys(0, 4))
    second = hasher.block(first, SECOND, identity.hashed_keys(1, 4))
    assert (first.hex(), second.hex()) == (digest0, digest1)
    assert (hasher.event_value(first), hasher.event_value(second)) == (value0, value1)


def test_root_hash() -> None:
    """The first block's parent is the hash of the seed."""
    assert BlockHasher("sha256").root.hex() == (
        "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198"
    )


def test_bytes_hashes() -> None:
    """On request events carry the whole digest."""
    hasher = BlockHasher(bytes_hashes=True)
    digest = hasher.block(hasher.root, FIRST)
    assert hasher.event_value(digest) == digest
    assert len(digest) == hashlib.sha256().digest_size


def test_identity_keys() -> None:
    """The adapter is in every block, the salt in the first; events show bare values."""
    identity = Identity(adapter="fr", adapter_path="/loras/fr", adapter_id=1, salt="s")
    assert identity.hashed_keys(0, 4) == (
        ("lora", "fr", "/loras/fr"),
        ("cache_salt", "s"),
    )
    assert identity.hashed_keys(1, 4) == (("lora", "fr", "/loras/fr"),)
    assert identity.event_keys(0, 4) == ("fr", "s")
    assert identity.event_keys(1, 4) == ("fr",)
    assert Identity().event_keys(0, 4) is None


_LEAVES = st.none() | st.integers(0, 2**64 - 1) | st.text(max_size=40) | st.binary()
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=5).map(tuple))


@given(_VALUES)
def test_cbor_equals_cbor2(value: object) -> None:
    """The hand-written encoder gives what the reference library gives."""
    assert canonical_cbor(value) == cbor2.dumps(value, canonical=True)


def test_cbor_refuses_what_no_hash_holds() -> None:
    """A float is never part of a block hash."""
    with pytest.raises(TypeError, match="float"):
        canonical_cbor(1.5)
