"""Every render request a real vLLM 0.32 was asked is answered as it answered."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from render import Renderer, RenderOptions, RenderRefused, RenderService
from tests.render.captured import SERVER, WORKER, Exchange, body_of, exchanges

CHAT = "/v1/chat/completions/render"
COMPLETIONS = "/v1/completions/render"
RESPONSES = "/v1/responses/render"
ROUTES = (CHAT, COMPLETIONS, RESPONSES, "/tokenize")
OURS = {"schema_version", "kind", "request"}


@pytest.fixture(scope="module")
def renderer(vllm: Renderer) -> Renderer:
    """Qwen3's renderer with the default encoder."""
    return vllm


@pytest.fixture(scope="module")
def worker(renderer: Renderer) -> RenderService:
    """The worker's options: with parsers."""
    return service(renderer, reasoning_parser="qwen3", tool_call_parser="hermes")


@pytest.fixture(scope="module")
def server(renderer: Renderer) -> RenderService:
    """The render server's options: without parsers."""
    return service(renderer)


def service(renderer: Renderer, **options: Any) -> RenderService:
    """A service named and limited as the captured ones were."""
    return RenderService(
        renderer,
        RenderOptions(
            served_model_names=("tiny-qwen3",), max_model_len=4096, **options
        ),
    )


def asked(service: RenderService, exchange: Exchange) -> Any:
    """The service's answer, through JSON as a client gets it."""
    routes: dict[str, Callable[[bytes], Any]] = {
        CHAT: service.chat,
        COMPLETIONS: service.completions,
        RESPONSES: service.responses,
        "/tokenize": service.tokenize,
    }
    answer = routes[exchange["path"]](body_of(exchange))
    return msgspec.json.decode(msgspec.json.encode(answer))


def compare(service: RenderService, exchange: Exchange) -> None:
    """Equal keys and values but for random ids; equal status, type and param."""
    if "Content-Type" in exchange["request_headers"]:
        pytest.skip("refused by HTTP before the service is asked: tests/gateway")
    if exchange["status"] != 200:
        with pytest.raises(RenderRefused) as caught:
            asked(service, exchange)
        wanted = exchange["response"]["error"]
        refused = caught.value.body()["error"]
        assert isinstance(refused, dict)
        assert caught.value.status == exchange["status"]
        for key in ("type", "param", "code"):
            assert refused[key] == wanted[key]
        return
    answer, wanted = asked(service, exchange), exchange["response"]
    if exchange["path"] == "/tokenize":
        assert answer == wanted
        return
    pairs = [(answer, wanted)]
    if isinstance(wanted, list):
        pairs = list(zip(answer, wanted, strict=True))
    for mine, theirs in pairs:
        assert _without_tag(mine) == _without_tag(theirs)
        assert set(mine) == set(theirs) | OURS


def _without_tag(answer: dict[str, Any]) -> dict[str, Any]:
    """Without random ids; JSON inside a string is compared as JSON."""
    kept = {k: v for k, v in answer.items() if k not in OURS}
    random = kept.pop("request_id")
    kept["request_id_form"] = [len(part) for part in random.split("-")], random[:5]
    tag = (kept["sampling_params"].get("structured_outputs") or {}).get(
        "structural_tag"
    )
    kept["structural_tag"] = tag and json.loads(tag)
    return kept


def test_the_captures_are_all_there() -> None:
    """The files hold as many exchanges as they did when they were captured."""
    count = [len(list(exchanges(files, *ROUTES))) for files in (WORKER, SERVER)]
    assert count == [65, 39]


@pytest.mark.parametrize("exchange", list(exchanges(WORKER, *ROUTES)))
def test_as_the_worker(worker: RenderService, exchange: Exchange) -> None:
    """With parsers configured, as on the captured worker."""
    compare(worker, exchange)


@pytest.mark.parametrize("exchange", list(exchanges(SERVER, *ROUTES)))
def test_as_the_render_server(server: RenderService, exchange: Exchange) -> None:
    """Without parsers, as on the captured render server."""
    compare(server, exchange)


CHATS = list(
    exchanges(("w1_chat_cases", "w1_token_forwarding_cases"), "/v1/chat/completions")
)


@pytest.mark.parametrize("exchange", CHATS)
def test_as_the_chat_route(worker: RenderService, exchange: Exchange) -> None:
    """Rendering takes and refuses what the chat route does, but for beam search."""
    request = exchange["request"]
    if request.get("use_beam_search"):
        pytest.skip("beam search: only the chat route takes it")
    if exchange["status"] != 200:
        with pytest.raises(RenderRefused) as caught:
            worker.chat(body_of(exchange))
        assert caught.value.status == exchange["status"]
        assert caught.value.param == exchange["response"]["error"]["param"]
        return
    answer = worker.chat(body_of(exchange))
    given = (request.get("kv_transfer_params") or {}).get("prompt_token_ids")
    if given and not request.get("echo"):
        assert answer["token_ids"] == given
