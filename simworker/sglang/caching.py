"""How SGLang caches, and the streams of its ranks."""

from functools import partial
from itertools import pairwise

from msgspec import msgpack

from kvindex.events import AllBlocksCleared, EventBatch
from kvindex.wire.sglang import encode_batch
from simworker.caching import Caching
from simworker.contents import Style
from simworker.layouts import LAYOUTS, as_arrays
from simworker.options import SimOptions
from simworker.publisher import publishers
from simworker.sglang.hashing import PageHasher

STYLE = Style(
    extra_keys=False,
    salt=True,
    copies=False,
    group=None,
    group_kind=None,
    host_medium="CPU_PINNED",
    merges=True,
)


def caching(options: SimOptions) -> Caching:
    """The ways of SGLang, as the options say: its tree is reset when it is made."""
    arrays = options.event_layout != "maps"
    encode = partial(encoded, pairs=options.bigrams, arrays=arrays)
    return Caching(
        hasher=PageHasher(bigrams=options.bigrams),
        style=STYLE,
        streams=publishers(options, encode),
        opening=(AllBlocksCleared(),),
        output_at_end=True,
    )


def encoded(batch: EventBatch, *, pairs: bool, arrays: bool) -> bytes:
    """A payload; with `pairs` stored events have one token id more than their pages."""
    payload = encode_batch(batch)
    if pairs:
        payload = _paired(payload)
    layout = LAYOUTS["sglang-arrays"]
    return as_arrays(payload, layout) if arrays and layout else payload


def _paired(payload: bytes) -> bytes:
    timestamp, events, rank = msgpack.decode(payload)
    for event in events:
        if "token_ids" in event:
            ids = event["token_ids"]
            event["token_ids"] = [*pairwise(ids)]
    return msgpack.encode([timestamp, events, rank])
