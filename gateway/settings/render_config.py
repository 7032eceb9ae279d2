"""The configuration of the render server, as far as it is its own."""

from typing import Annotated

from gateway.settings.options import option
from gateway.settings.shared_config import Port, SharedConfig
from gateway.settings.values import secret


class RenderConfig(SharedConfig, frozen=True, kw_only=True):
    """What `kv-gateway render` does, decided at start and never changed."""

    model: Annotated[
        str | None,
        option(
            "model directory, or hub id in the local cache, whose tokenizer and chat "
            "template render requests",
            metavar="DIR_OR_ID",
        ),
    ] = None
    served_model_name: Annotated[
        tuple[str, ...],
        option(
            "name that requests may give the model; repeatable",
            metavar="NAME",
            shown_default="what --model says",
        ),
    ] = ()
    port: Port = 8100
    api_key: Annotated[
        str | None,
        option(
            "bearer key of every route but /health and /ready",
            metavar="KEY",
            parse=secret,
        ),
    ] = None
