"""The configuration of the front door: one frozen record, each option declared once.

Where workers are found is declared in discovery_config.py, how they and clients are
treated in proxy_config.py; what the render server has, too, in shared_config.py.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from gateway.errors import ConfigError
from gateway.settings.memory import memory_bytes
from gateway.settings.options import MIB, MINUTES, SECONDS, option
from gateway.settings.process_config import ProcessConfig
from gateway.settings.shared_config import Port
from gateway.settings.values import (
    EventEndpoint,
    EventTopic,
    WorkerApi,
    bind_endpoint,
    declared_api,
    event_endpoint,
    event_topic,
    fraction,
    model_source,
    path_prefix,
    policy_name,
    positive,
    secret,
    size,
    worker_urls,
)
from router.forwarding import When
from router.policies import POLICIES
from router.worker import TOKENS, WorkerSpec


class Config(ProcessConfig, frozen=True, kw_only=True):
    """What `kv-gateway` does, decided at start and never changed."""

    workers: Annotated[
        tuple[tuple[str, ...], ...],
        option(
            "the workers, comma-separated; bare hosts get http:// and :8000",
            metavar="URL[,URL...]",
            parse=worker_urls,
        ),
    ] = ()
    workers_file: Annotated[
        Path | None,
        option(
            "file that names further workers, TOML or JSON, read again when it changes",
            metavar="FILE",
            parse=Path,
        ),
    ] = None
    model: Annotated[
        tuple[tuple[str | None, str], ...],
        option(
            "model directory, or hub id in the local cache, whose tokenizer and chat "
            "template render requests; NAME= for one of several served models; "
            "repeatable",
            metavar="[NAME=]DIR_OR_ID",
            parse=model_source,
            shown_default="asked of the workers",
        ),
    ] = ()
    port: Port = 8080
    policy: Annotated[
        str,
        option("how a worker is chosen", metavar="|".join(POLICIES), parse=policy_name),
    ] = "kv_cache_aware"
    prefill_rate: Annotated[
        float | None,
        option(
            "prompt tokens a worker prefills per second",
            metavar="N",
            parse=positive,
            shown_default="learnt of each worker",
        ),
    ] = None
    kv_events: Annotated[
        tuple[EventEndpoint, ...],
        option(
            "where a worker publishes KV events; repeatable",
            metavar="URL[#RANK]=tcp://HOST:PORT",
            parse=event_endpoint,
            shown_default="as the worker tells",
        ),
    ] = ()
    kv_replay: Annotated[
        tuple[EventEndpoint, ...],
        option(
            "where a worker replays KV events that were missed; repeatable",
            metavar="URL[#RANK]=tcp://HOST:PORT",
            parse=event_endpoint,
            shown_default="as the worker tells",
        ),
    ] = ()
    kv_events_bind: Annotated[
        str | None,
        option(
            "listen for KV events of publishers that connect to the gateway",
            metavar="tcp://HOST:PORT",
            parse=bind_endpoint,
        ),
    ] = None
    kv_events_topic: Annotated[
        tuple[EventTopic, ...],
        option(
            "the topic of a worker that publishes to --kv-events-bind; repeatable",
            metavar="URL=TOPIC",
            parse=event_topic,
            shown_default="kv@HOST:PORT@MODEL or as told",
        ),
    ] = ()
    worker_api: Annotated[
        tuple[WorkerApi, ...],
        option(
            "what a worker takes: chats and the like, or token ids only, at "
            "/inference/v1/generate; without URL= all that are not named; repeatable",
            metavar="[URL=]chat|tokens",
            parse=declared_api,
            shown_default="as its routes tell",
        ),
    ] = ()
    index_memory: Annotated[
        int,
        option(
            "hard bound of the block index",
            metavar="BYTES",
            parse=size,
            shown_default="25 % of the memory of the machine or container",
        ),
    ] = memory_bytes() // 4
    offload_weight: Annotated[
        float,
        option(
            "worth of a held block that is not on the GPU",
            metavar="0..1",
            parse=fraction,
        ),
    ] = 0.5
    suspect_ttl: Annotated[
        float,
        option(
            "seconds until blocks that lost events made doubtful are dropped",
            metavar="SECONDS",
            parse=positive,
        ),
    ] = 10 * MINUTES
    render: Annotated[
        Literal["auto", "never"],
        option("render requests to token ids; never: route by load and raw content"),
    ] = "auto"
    render_deadline: Annotated[
        float,
        option(
            "seconds a rendering may take before the request is routed without it",
            metavar="SECONDS",
            parse=positive,
        ),
    ] = 0.2 * SECONDS
    max_render_bytes: Annotated[
        int,
        option(
            "larger bodies are routed without ids, and refused by the render endpoints",
            metavar="BYTES",
            parse=size,
        ),
    ] = 4 * MIB
    render_endpoints: Annotated[
        bool,
        option(
            "answer /v1/chat/completions/render, /v1/completions/render and "
            "/v1/responses/render here; off: a worker does"
        ),
    ] = True
    forward_when: Annotated[
        When,
        option(
            "token ids go along with a chat if every worker for its model is proven "
            "to render as the gateway does, if the chosen one is, or never"
        ),
    ] = "all"
    proof: Annotated[
        Literal["auto", "digest", "digest-or-probe"],
        option(
            "what proves that a worker renders alike, so that ids may be sent to it: "
            "its published digest, or ids of fixed chats too; auto: digest for "
            "TensorRT-LLM, digest-or-probe for the others"
        ),
    ] = "auto"
    probe: Annotated[
        bool,
        option(
            "probe workers by chats of one token too, for what their other routes "
            "cannot tell"
        ),
    ] = False
    proxy_path: Annotated[
        tuple[str, ...],
        option(
            "further path prefix to proxy to the workers; repeatable",
            metavar="PREFIX",
            parse=path_prefix,
        ),
    ] = ()
    admin_key: Annotated[
        str | None,
        option(
            "bearer key that opens /gateway/** to peers that are not on loopback",
            metavar="KEY",
            parse=secret,
        ),
    ] = None
    worker_api_key: Annotated[
        str | None,
        option(
            "bearer key for the gateway's own polls of the workers, and for clients' "
            "requests with --worker-auth replace",
            metavar="KEY",
            parse=secret,
        ),
    ] = None
    client_rank: Annotated[
        bool, option("let clients choose a data-parallel rank by header")
    ] = False
    decision_header: Annotated[
        bool,
        option("tell clients the worker, its held and the uncached tokens by header"),
    ] = False


def worker_specs(config: Config) -> list[WorkerSpec]:
    """A record per distinct worker URL, with its event endpoints; ConfigError."""
    urls = _urls(config)
    if config.render == "never" and any(one.api == TOKENS for one in config.worker_api):
        raise ConfigError("--worker-api tokens needs rendering: leave out --render")
    if config.workers_file is None and not config.discovers:  # else it may come
        for one in config.worker_api:
            if one.url is not None:
                _known("--worker-api", one.url, urls)
    events = _by_worker("--kv-events", config.kv_events, urls)
    replays = _by_worker("--kv-replay", config.kv_replay, urls)
    return [
        WorkerSpec(
            url=url,
            api=api_of(config, url),
            kv_events=events.get(url, {}),
            replay=replays.get(url, {}),
        )
        for url in urls
    ]


def api_of(config: Config, url: str) -> str | None:
    """What the worker at a URL takes, as declared; None where it is not."""
    declared = {one.url: one.api for one in config.worker_api}
    return declared.get(url, declared.get(None))


def event_topics(config: Config) -> dict[str, str]:
    """Worker URL by topic, as declared; ConfigError."""
    urls: dict[str, str] = {}
    for declared in config.kv_events_topic:
        if config.kv_events_bind is None:
            raise ConfigError("--kv-events-topic is of no use without --kv-events-bind")
        if config.workers_file is None and not config.discovers:  # else it may come
            _known("--kv-events-topic", declared.url, _urls(config))
        if urls.setdefault(declared.topic, declared.url) != declared.url:
            raise ConfigError(f"--kv-events-topic has {declared.topic!r} twice")
    return urls


def _urls(config: Config) -> list[str]:
    return list(dict.fromkeys(url for group in config.workers for url in group))


def _by_worker(
    flag: str, declared: Sequence[EventEndpoint], urls: Sequence[str]
) -> dict[str, dict[int, str]]:
    """Endpoints by worker and rank."""
    endpoints: dict[str, dict[int, str]] = {}
    for one in declared:
        _known(flag, one.url, urls)
        of_worker = endpoints.setdefault(one.url, {})
        if of_worker.setdefault(one.rank, one.endpoint) != one.endpoint:
            raise ConfigError(f"{flag} names {one.url}#{one.rank} more than once")
    return endpoints


def _known(flag: str, url: str, urls: Sequence[str]) -> None:
    if url not in urls:
        raise ConfigError(f"{flag} names {url}, which --workers does not")
