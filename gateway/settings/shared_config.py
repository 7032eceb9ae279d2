"""The options that the front door and the render server have in common.

Each is declared here once; what is one's own is in config.py or render_config.py.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from gateway.settings.log_config import LogConfig
from gateway.settings.options import MIB, SECONDS, option
from gateway.settings.parser_names import reasoning_parser_name, tool_parser_name
from gateway.settings.values import (
    fraction,
    json_object,
    port_number,
    seconds,
    size,
    template,
    whole,
)

Port = Annotated[
    int, option("port to listen on, 0 for any", metavar="N", parse=port_number)
]
"""The option `port`; its default is each server's own."""

DEFAULT_PROFILE = "vllm"


class SharedConfig(LogConfig, frozen=True, kw_only=True):
    """How a server of ours renders, and how it serves."""

    config: Annotated[
        Path | None,
        option(
            "file of options under these names, TOML; flags and variables win over it",
            metavar="FILE",
            parse=Path,
        ),
    ] = None
    host: Annotated[str, option("address to listen on", metavar="ADDRESS")] = "0.0.0.0"  # noqa: S104 - a front door
    profile: Annotated[
        Literal["auto", "vllm", "trtllm", "sglang"],
        option(
            "the engine whose rendering and statuses the render endpoints follow; "
            "auto: the workers' if they agree, else vllm"
        ),
    ] = "auto"
    render_dialect: Annotated[
        Literal["union", "trtllm", "vllm"],
        option("which keys the render endpoints answer with; union: those of both"),
    ] = "union"
    tokenizer: Annotated[
        str | None,
        option(
            "directory or hub id of the tokenizer",
            metavar="DIR_OR_ID",
            shown_default="the model's",
        ),
    ] = None
    tokenizer_mode: Annotated[
        str, option("how the tokenizer is loaded, as on the workers", metavar="MODE")
    ] = "auto"
    revision: Annotated[
        str | None,
        option(
            "branch, tag or commit of a hub id in the local cache",
            metavar="NAME",
            shown_default="main",
        ),
    ] = None
    encoder: Annotated[
        Literal["auto", "fastokens", "tokenizers"],
        option("what turns text into ids; auto: fastokens if it passes its self-test"),
    ] = "auto"
    verify_encoder: Annotated[
        float,
        option(
            "share of texts that are encoded again by tokenizers, beside the requests; "
            "if the ids differ it is the encoder from then on; 0: none",
            metavar="SHARE",
            parse=fraction,
        ),
    ] = 0.001
    chat_template: Annotated[
        str | None,
        option(
            "chat template, a file or its text",
            metavar="FILE_OR_TEXT",
            parse=template,
        ),
    ] = None
    chat_template_content_format: Annotated[
        Literal["auto", "string", "openai"],
        option("what the template expects as message content"),
    ] = "auto"
    default_chat_template_kwargs: Annotated[
        dict[str, Any] | None,
        option(
            "template variables a request may override, as on the workers",
            metavar="JSON",
            parse=json_object,
        ),
    ] = None
    trust_request_chat_template: Annotated[
        bool, option("let requests to render endpoints bring a chat template")
    ] = False
    reasoning_parser: Annotated[
        str | None,
        option(
            "the workers' reasoning parser, as render endpoints tell it",
            metavar="NAME",
            parse=reasoning_parser_name,
        ),
    ] = None
    tool_call_parser: Annotated[
        str | None,
        option(
            "the workers' tool-call parser; implies that tools are chosen "
            "automatically",
            metavar="NAME",
            parse=tool_parser_name,
        ),
    ] = None
    max_model_len: Annotated[
        int | None,
        option(
            "tokens that a prompt to a render endpoint and its answer may have",
            metavar="N",
            parse=whole,
            shown_default="the workers', else the model's",
        ),
    ] = None
    render_threads: Annotated[
        int, option("threads that render", metavar="N", parse=whole)
    ] = 2
    render_queue: Annotated[
        int,
        option(
            "requests that may wait to be rendered; more are routed without ids, or "
            "answered 503 by the render endpoints",
            metavar="N",
            parse=whole,
        ),
    ] = 256
    max_body: Annotated[
        int, option("largest request body; above: 413", metavar="BYTES", parse=size)
    ] = 128 * MIB
    drain_delay: Annotated[
        float,
        option(
            "seconds after a SIGTERM during which all is served, but /ready is 503",
            metavar="SECONDS",
            parse=seconds,
        ),
    ] = 5 * SECONDS
    drain_timeout: Annotated[
        float,
        option(
            "seconds that open requests get to end then; a second signal ends at once",
            metavar="SECONDS",
            parse=seconds,
        ),
    ] = 20 * SECONDS
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], option("how much to log")
    ] = "info"
