"""Payloads as older releases wrote them."""

import pytest
from msgspec import msgpack

from kvindex.blocks import pack_ids
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from kvindex.wire.vllm import decode_batch, encode_batch
from simworker.layouts import LAYOUTS, as_arrays

STORED = BlockStored(
    hashes=(1,),
    parent=None,
    token_ids=pack_ids([5, 6]),
    block_size=2,
    medium="GPU",
    adapter="fr",
    extra_keys=(("fr",),),
    group=0,
    group_kind="full_attention",
)
BATCH = EventBatch(
    timestamp=2.5,
    events=(STORED, BlockRemoved(hashes=(2,), medium="GPU"), AllBlocksCleared()),
    rank=1,
)
FULL = [
    "BlockStored", [1], None, [5, 6], 2, None, "GPU", "fr", [["fr"]], 0,
    "full_attention",
]  # fmt: skip


@pytest.mark.parametrize(
    ("release", "fields", "removed"),
    [
        ("0.9", 6, []), ("0.10", 7, ["GPU"]), ("0.14", 8, ["GPU"]),
        ("0.17", 9, ["GPU"]), ("0.20", 10, ["GPU"]), ("0.22", 11, ["GPU"]),
    ],
)  # fmt: skip
def test_fields_of_a_release(release: str, fields: int, removed: list[str]) -> None:
    """Those that it has, in its order, without the nulls at the end."""
    layout = LAYOUTS[release]
    assert layout is not None
    payload = as_arrays(encode_batch(BATCH), layout)
    assert msgpack.decode(payload) == [
        2.5,
        [
            FULL[:fields],
            ["BlockRemoved", [2], *removed],
            ["AllBlocksCleared"],
        ],
        1,
    ]
    assert decode_batch(payload).undecodable == ()


def test_maps_are_no_arrays() -> None:
    """The layout of today."""
    assert LAYOUTS["maps"] is None
