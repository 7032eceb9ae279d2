"""The options of the proxy: how long it waits, whom it trusts, how much it takes on."""

from typing import Annotated

from gateway.settings.access_config import AccessConfig
from gateway.settings.memory import memory_bytes
from gateway.settings.options import MINUTES, SECONDS, option
from gateway.settings.values import count, interval, positive, size, whole


class ProxyConfig(AccessConfig, frozen=True, kw_only=True):
    """How the front door treats its workers and its clients."""

    connect_timeout: Annotated[
        float,
        option("seconds to connect to a worker", metavar="SECONDS", parse=positive),
    ] = 5 * SECONDS
    first_byte_timeout: Annotated[
        float,
        option(
            "seconds until a worker's answer begins, or ten times what its prefill is "
            "expected to take, if that is more",
            metavar="SECONDS",
            parse=positive,
        ),
    ] = 10 * MINUTES
    idle_timeout: Annotated[
        float,
        option(
            "seconds of silence within a worker's answer",
            metavar="SECONDS",
            parse=positive,
        ),
    ] = 5 * MINUTES
    health_interval: Annotated[
        float,
        option(
            "seconds between two health checks of a worker, 0: none; one that failed "
            "is checked every second",
            metavar="SECONDS",
            parse=interval,
        ),
    ] = 5 * SECONDS
    health_timeout: Annotated[
        float,
        option(
            "seconds that a health check may take; one that is late does not count "
            "while the worker sends answers, or may be at a long prefill",
            metavar="SECONDS",
            parse=positive,
        ),
    ] = 5 * SECONDS
    health_fall: Annotated[
        int,
        option(
            "health checks that fail in a row until a worker gets no requests",
            metavar="N",
            parse=whole,
        ),
    ] = 3
    health_rise: Annotated[
        int,
        option(
            "health checks that pass in a row until a worker that failed is used again",
            metavar="N",
            parse=whole,
        ),
    ] = 2
    load_interval: Annotated[
        float,
        option(
            "seconds between two looks at what a worker says of its load, 0: none",
            metavar="SECONDS",
            parse=interval,
        ),
    ] = 1 * SECONDS
    max_inflight_tokens: Annotated[
        int | None,
        option(
            "uncached prompt tokens that the workers for a model may have in flight, "
            "on average; above, requests wait",
            metavar="N",
            parse=whole,
        ),
    ] = None
    max_queue: Annotated[
        int,
        option(
            "requests that may wait for --max-inflight-tokens, 0: none; more are "
            "answered 503",
            metavar="N",
            parse=count,
        ),
    ] = 256
    queue_timeout: Annotated[
        float,
        option(
            "seconds that one may wait until it is answered 503",
            metavar="SECONDS",
            parse=positive,
        ),
    ] = 10 * SECONDS
    max_bodies: Annotated[
        int,
        option(
            "bytes of all request bodies held at a time; above: 503",
            metavar="BYTES",
            parse=size,
            shown_default="25 % of the memory of the machine or container",
        ),
    ] = memory_bytes() // 4
