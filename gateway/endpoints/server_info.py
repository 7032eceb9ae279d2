"""`GET /server_info`: what renders here, in TensorRT-LLM's shape.

Its keys are `role`, `model`, `schema_version` and `render_fingerprint`; `info` and, on
the front door, `models` are ours.
"""

from importlib.metadata import version
from typing import Any

import msgspec

from gateway.endpoints.render_services import RenderServices
from gateway.proof.fingerprints import Fingerprints
from render import RenderRefused, RenderService
from render.fingerprint import Fingerprint

SCHEMA_VERSION = 1
"""Of the render answers, as TensorRT-LLM counts them."""

# Read once: the event loop does not wait for files.
OURS = version("kv-gateway")
JINJA2 = version("jinja2")

Json = dict[str, Any]


def of_render_server(service: RenderService, fingerprint: Fingerprint | None) -> Json:
    """The render server's: one model."""
    return {
        "role": "renderer",
        "model": service.options.served_model_names[0],
        "schema_version": SCHEMA_VERSION,
        "render_fingerprint": _published(service, fingerprint),
        "info": {"version": OURS, **_rendering(service)},
    }


def of_gateway(services: RenderServices, fingerprints: Fingerprints) -> Json:
    """The front door's: the first model as if it were the only one, and `models`."""
    models = {name: _model(name, services, fingerprints) for name in services.models()}
    first = next(iter(models), None)
    return {
        "role": "gateway",
        "model": first,
        "schema_version": SCHEMA_VERSION,
        "render_fingerprint": models[first]["render_fingerprint"] if first else None,
        "info": {"version": OURS},
        "models": models,
    }


def _model(name: str, services: RenderServices, fingerprints: Fingerprints) -> Json:
    try:
        service = services.of(name)
    except RenderRefused:  # it is served, but not rendered here
        return {"render_fingerprint": None, "info": None}
    fingerprint = fingerprints.of(service.renderer)
    return {
        "render_fingerprint": _published(service, fingerprint),
        "info": _rendering(service),
    }


def _published(service: RenderService, fingerprint: Fingerprint | None) -> Json | None:
    """With the profile of the endpoints: the rest is the same for each of them."""
    if fingerprint is None:
        return None
    info = {**fingerprint.info, "profile": service.renderer.profile}
    return msgspec.structs.replace(fingerprint, info=info).published()


def _rendering(service: RenderService) -> Json:
    options, renderer = service.options, service.renderer
    return {
        "profile": renderer.profile,
        "dialect": options.dialect,
        "encoder": renderer.encoder_name,
        "jinja2": JINJA2,
        "max_model_len": options.max_model_len,
        "reasoning_parser": options.reasoning_parser,
        "tool_parser": options.tool_call_parser,
    }
