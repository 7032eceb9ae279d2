"""Block hashes: against an independent computation, and their traps."""

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from kvindex.blocks import RUN, Namespace, chain, matchable_blocks, pack_ids, unpack_ids

U32 = st.integers(0, 2**32 - 1)


def golden_root(*fields: str | None) -> int:
    """The namespace hash, written down a second time."""
    data = b""
    for field in fields:
        data += b"\0" if field is None else b"\1"
        if field is not None:
            data += struct.pack("<Q", len(field.encode())) + field.encode()
    return xxhash.xxh3_64(data).intdigest()


def test_root_is_the_hash_of_length_prefixed_fields() -> None:
    """The root follows its definition, field by field."""
    assert Namespace(model="Qwen/Qwen3-8B").root() == golden_root(
        "Qwen/Qwen3-8B", None, None
    )
    full = Namespace(model="m", adapter="sql", salt="tenant-a")
    assert full.root() == golden_root("m", "sql", "tenant-a")


def test_golden_values() -> None:
    """Values that must never change: other gateways would no longer agree."""
    root = Namespace(model="m").root()
    assert root == xxhash.xxh3_64_intdigest(b"\x01\x01\0\0\0\0\0\0\0m\0\0")
    ids = list(range(1, 33))
    first = xxhash.xxh3_64_intdigest(struct.pack("<16I", *ids[:16]), seed=root)
    second = xxhash.xxh3_64_intdigest(struct.pack("<16I", *ids[16:]), seed=first)
    assert chain(pack_ids(ids), 16, root) == [first, second]


def test_namespaces_do_not_collide() -> None:
    """No field can pass for another one, empty is not none, surrogates are allowed."""
    spaces = [
        Namespace(model="ab"),
        Namespace(model="a", adapter="b"),
        Namespace(model="a", salt="b"),
        Namespace(model="a"),
        Namespace(model="a", adapter=""),
        Namespace(model="a", salt=""),
        Namespace(model="a", salt="\ud800"),
        Namespace(model="a", untold="b"),
        Namespace(model="a", untold=""),
    ]
    assert len({space.root() for space in spaces}) == len(spaces)


@given(st.lists(U32, max_size=100), st.integers(1, 40), st.integers(0, 2**64 - 1))
def test_chain_hashes_full_blocks(ids: list[int], size: int, root: int) -> None:
    """Each full block is hashed with its parent as seed, a rest is not."""
    expected, parent = [], root
    for start in range(0, len(ids) - size + 1, size):
        block = struct.pack(f"<{size}I", *ids[start : start + size])
        parent = xxhash.xxh3_64_intdigest(block, seed=parent)
        expected.append(parent)
    assert chain(pack_ids(ids), size, root) == expected


@pytest.mark.parametrize("blocks", [1, RUN - 1, RUN, RUN + 1, 3 * RUN, 3 * RUN + 2])
def test_blocks_are_the_same_however_many_are_cut_at_once(blocks: int) -> None:
    """Around whole runs: each block has its place, and its own extra key."""
    token_ids = pack_ids(range(4 * blocks + 3))
    keys = {position: bytes([position]) for position in range(0, blocks, 3)}
    expected, parent = [], 5
    for position in range(blocks):
        ids = token_ids[16 * position : 16 * position + 16]
        parent = xxhash.xxh3_64_intdigest(ids + keys.get(position, b""), seed=parent)
        expected.append(parent)
    assert chain(token_ids, 4, 5, keys) == expected


@given(st.lists(U32, min_size=8, max_size=40))
def test_chain_can_be_continued(ids: list[int]) -> None:
    """The hash of a block is the root of what follows it."""
    whole = chain(pack_ids(ids), 4, 7)
    assert whole[2:] == chain(pack_ids(ids[8:]), 4, whole[1])


def test_extra_keys_change_their_block_and_all_after() -> None:
    """Media tell blocks of equal ids apart."""
    token_ids = pack_ids(range(12))
    plain = chain(token_ids, 4, 1)
    marked = chain(token_ids, 4, 1, {1: b"image"})
    assert marked[0] == plain[0]
    assert marked[1] == xxhash.xxh3_64_intdigest(token_ids[16:32] + b"image", plain[0])
    assert marked[2] != plain[2]
    assert chain(token_ids, 4, 1, {1: b"", 9: b"x"}) == plain


def test_a_middle_block_needs_its_parents() -> None:
    """[A, B] and [C, B] share nothing."""
    a, b, c = ([i] * 4 for i in (1, 2, 3))
    assert not set(chain(pack_ids(a + b), 4, 0)) & set(chain(pack_ids(c + b), 4, 0))


def test_block_size_must_be_positive() -> None:
    """A size of nothing would never end."""
    with pytest.raises(ValueError, match="block size"):
        chain(b"", 0, 1)


@given(st.lists(U32))
def test_ids_round_trip(ids: list[int]) -> None:
    """Packed little-endian, and back."""
    packed = struct.pack(f"<{len(ids)}I", *ids)
    assert pack_ids(ids) == pack_ids(tuple(ids)) == pack_ids(iter(ids)) == packed
    assert unpack_ids(pack_ids(ids)) == ids


@pytest.mark.parametrize("ids", [[-1], [2**32], ["1"], [None], [1.5]])
def test_ids_outside_u32_are_refused(ids: list[int]) -> None:
    """One error for all that is no id."""
    for same in (ids, tuple(ids), iter(ids)):
        with pytest.raises(ValueError, match="token ids"):
            pack_ids(same)


def test_left_over_bytes_are_refused() -> None:
    """Packed ids have four bytes each."""
    with pytest.raises(ValueError, match="bytes"):
        unpack_ids(b"12345")


@pytest.mark.parametrize(
    ("tokens", "blocks"), [(0, 0), (1, 0), (16, 0), (17, 1), (32, 1), (33, 2)]
)
def test_a_hit_never_covers_the_last_token(tokens: int, blocks: int) -> None:
    """(n - 1) // block size, as the engines have it."""
    assert matchable_blocks(tokens, 16) == blocks
