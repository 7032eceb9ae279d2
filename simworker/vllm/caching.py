"""How vLLM caches, and the streams of its ranks."""

from functools import partial

from kvindex.events import EventBatch
from kvindex.wire.vllm import encode_batch
from simworker.caching import Caching
from simworker.contents import Style
from simworker.hashing import BlockHasher
from simworker.layouts import LAYOUTS, Layout, as_arrays
from simworker.options import SimOptions
from simworker.publisher import publishers


def caching(options: SimOptions) -> Caching:
    """The ways of vLLM, as the options say."""
    hasher = BlockHasher(
        options.hash_algo, seed=options.hash_seed, bytes_hashes=options.bytes_hashes
    )
    layout = LAYOUTS[options.event_layout]
    return Caching(
        hasher=hasher,
        style=Style(bare_offload=options.bare_offload),
        streams=publishers(options, partial(_encoded, layout=layout)),
        windows=options.attention_windows,
        masks=True,
    )


def _encoded(batch: EventBatch, layout: Layout | None) -> bytes:
    payload = encode_batch(batch)
    return payload if layout is None else as_arrays(payload, layout)
