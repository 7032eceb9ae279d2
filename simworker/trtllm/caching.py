"""How TensorRT-LLM caches, and the events of its ranks."""

from functools import partial

import msgspec

from kvindex.events import CacheCreated, KVEvent
from kvindex.wire.trtllm import encode_event
from simworker.caching import Caching
from simworker.contents import Style
from simworker.drain import EventBuffer, RankEvents
from simworker.options import SimOptions
from simworker.trtllm.hashing import BlockKeys

STYLE = Style(
    extra_keys=False,
    copies=False,
    group=None,
    group_kind=None,
    host_medium="CPU",
    moves=True,
    clears=False,
    merges=True,
)


def caching(options: SimOptions) -> Caching:
    """The ways of TensorRT-LLM, as the options say."""
    ranks = options.data_parallel_size
    buffer = EventBuffer(options.event_buffer * ranks)
    encode = partial(
        _encoded,
        algorithm=options.event_hash_algo,
        many=ranks > 1,
        grouped=bool(options.attention_windows),
    )
    numbers = range(ranks if options.kv_events else 0)
    levels = (options.blocks - 1, options.host_blocks)
    return Caching(
        hasher=BlockKeys(options.event_hash_algo),
        style=STYLE,
        streams=[RankEvents(buffer, encode, rank=number) for number in numbers],
        opening=(CacheCreated(blocks_per_level=levels),),
        output_at_end=True,
        windows=options.attention_windows,
        full_window=options.max_model_len or 32_768,
        buffer=buffer,
    )


def _encoded(
    event: KVEvent,
    event_id: int,
    rank: int,
    *,
    algorithm: str,
    many: bool,
    grouped: bool,
) -> bytes:
    """An event's JSON; one rank alone has no number, one group neither."""
    told = algorithm != "v1_block_key"
    if not (grouped or told):
        event = msgspec.structs.replace(event, group=None)
    item = encode_event(
        event,
        event_id,
        rank=rank if many else None,
        hash_algo=algorithm if told else None,
    )
    return msgspec.json.encode(item)
