"""The render server over real sockets: what a real vLLM was asked, keys, limits."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.gateway.render_rig import StartRenderServer
from tests.running import MODEL

DATA = Path(__file__).parents[2] / "data" / "vllm"
PLAIN = {"served_model_name": ("tiny-qwen3",), "max_model_len": 4096}
WITH_PARSERS = PLAIN | {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
FILES = {
    "w1_chat_cases": WITH_PARSERS,
    "w1_other_cases": WITH_PARSERS,
    "render_server_cases": PLAIN,
}
CHAT = "/v1/chat/completions/render"
ROUTES = (CHAT, "/v1/completions/render", "/v1/responses/render", "/tokenize")
HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}

Exchange = dict[str, Any]

pytestmark = pytest.mark.usefixtures("never_blocks")


def exchanges(file: str) -> Iterator[tuple[str, Exchange]]:
    """Every exchange of a file of captures that a render server answers."""
    cases = json.loads(gzip.decompress((DATA / f"{file}.json.gz").read_bytes()))
    for name, case in cases["cases"].items():
        steps = {"": case} if "path" in case else case
        for step, exchange in steps.items():
            if isinstance(exchange, dict) and exchange["path"] in ROUTES:
                yield f"{name} {step}", exchange


def told(answer: Any) -> Any:
    """What of an answer must be equal: ids, or an error's type, param and code."""
    if isinstance(answer, list):
        return [told(item) for item in answer]
    if "error" in answer:
        return {key: answer["error"][key] for key in ("type", "param", "code")}
    return answer.get("token_ids", answer.get("tokens"))


@pytest.mark.parametrize("file", FILES)
async def test_as_captured(start_render_server: StartRenderServer, file: str) -> None:
    """Equal statuses, ids and errors, case for case."""
    server = await start_render_server(**FILES[file])
    different = []
    for name, exchange in exchanges(file):
        request = exchange["request"]
        raw = request.get("__raw__") if isinstance(request, dict) else None
        body = (raw or json.dumps(request)).encode()
        headers = {"Content-Type": "application/json"} | exchange["request_headers"]
        status, answer, _ = await server.send(exchange["path"], body, **headers)
        wanted = exchange["status"], told(exchange["response"])
        if (status, told(answer)) != wanted:
            different.append((name, status, told(answer), wanted))
    assert different == []


async def test_what_it_says_of_itself(start_render_server: StartRenderServer) -> None:
    """Role, model, schema; health and readiness; the model's entry."""
    server = await start_render_server(
        served_model_name=("a", "b"),
        reasoning_parser="qwen3",
        tool_call_parser="hermes",
    )
    info = await server.get("/server_info")
    assert info["role"] == "renderer"
    assert info["model"] == "a"
    assert info["schema_version"] == 1
    assert info["info"]["reasoning_parser"] == "qwen3"
    assert info["info"]["tool_parser"] == "hermes"
    assert info["info"]["profile"] == "vllm"
    assert info["info"]["max_model_len"] == 40960
    assert await server.get("/health") == {"status": "ok"}
    assert await server.get("/ready") == {"status": "ready"}
    entries = (await server.get("/v1/models"))["data"]
    assert [entry["id"] for entry in entries] == ["a", "b"]
    assert entries[0]["max_model_len"] == 40960
    one = await server.get("/v1/models/b")
    assert (one["id"], one["object"], one.keys()) == ("b", "model", entries[1].keys())
    refused = (await server.get("/v1/models/c", 404))["error"]
    assert (refused["code"], refused["param"]) == ("model_not_found", "model")


async def test_there_and_back(start_render_server: StartRenderServer) -> None:
    """What /tokenize gives, /detokenize gives back."""
    server = await start_render_server()
    text = "Grüße aus dem Hafen 🚢"
    tokens = await server.post("/tokenize", {"model": MODEL, "prompt": text})
    back = await server.post(
        "/detokenize", {"model": MODEL, "tokens": tokens["tokens"]}
    )
    assert back == {"prompt": text}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/generate", "/x", "/"])
async def test_nothing_else_is_there(
    start_render_server: StartRenderServer, path: str
) -> None:
    """Inference is not answered here: 404, with what is wrong."""
    server = await start_render_server()
    status, answer, _ = await server.send(path, HELLO)
    assert status == 404
    assert answer["error"]["code"] == "not_found"
    assert (await server.get(CHAT, 405))["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    "given", ["", "Bearer wrong", "Bearer", "Basic secret", "secret", "Bearer sécret"]
)
async def test_without_the_key(
    start_render_server: StartRenderServer, given: str
) -> None:
    """401 in OpenAI's shape on every route but two, those that are not there, too."""
    server = await start_render_server(api_key="secret")
    headers = {"Authorization": given} if given else {}
    for path in (*ROUTES, "/detokenize", "/nothing"):
        status, answer, sent = await server.send(path, HELLO, **headers)
        assert status == 401
        assert answer["error"]["code"] == "invalid_api_key"
        assert answer["error"]["type"] == "invalid_request_error"
        assert sent["WWW-Authenticate"] == "Bearer"
    for path in ("/v1/models", "/server_info", "/metrics"):
        assert (await server.get(path, 401, headers=headers))["error"]["message"]
    assert await server.get("/health", headers=headers) == {"status": "ok"}
    assert await server.get("/ready", headers=headers) == {"status": "ready"}


async def test_with_the_key(start_render_server: StartRenderServer) -> None:
    """An OpenAI client's own header opens it."""
    server = await start_render_server(api_key="secret")
    status, answer, _ = await server.send(CHAT, HELLO, Authorization="Bearer secret")
    assert (status, answer["kind"]) == (200, "chat")
    url = server.url + "/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="secret") as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
    async with openai.AsyncOpenAI(base_url=url, api_key="wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()


async def test_request_ids(start_render_server: StartRenderServer) -> None:
    """The client's own, with the answer's prefix; else a new one each time."""
    server = await start_render_server()
    _, answer, headers = await server.send(CHAT, HELLO, **{"X-Request-Id": "abc-1"})
    assert answer["request_id"] == "chatcmpl-abc-1"
    assert headers["X-Request-ID"] == "abc-1"
    _, answer, _ = await server.send(CHAT, HELLO | {"request_id": "of-the-body"})
    assert answer["request_id"] == "chatcmpl-of-the-body"
    ids = {(await server.send(CHAT, HELLO))[1]["request_id"] for _ in range(3)}
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("query", "shown"),
    [("", False), ("?prompt_text=0", False), ("?prompt_text=false", False),
     ("?prompt_text=1", True), ("?prompt_text=TRUE", True), ("?prompt_text", True),
     ("?a=b&prompt_text=1&c", True), ("?prompt_text=%31", True)],
)  # fmt: skip
async def test_the_text(
    start_render_server: StartRenderServer, query: str, shown: bool
) -> None:
    """The rendered text comes along where it is asked for."""
    server = await start_render_server()
    _, answer, _ = await server.send(CHAT + query, HELLO)
    texts = [value for value in answer.values() if isinstance(value, str)]
    assert any("<|im_start|>user\nhello<|im_end|>" in text for text in texts) is shown


async def test_a_query_that_is_neither(start_render_server: StartRenderServer) -> None:
    """400, naming the parameter."""
    server = await start_render_server()
    status, answer, _ = await server.send(CHAT + "?prompt_text=perhaps", HELLO)
    assert status == 400
    assert answer["error"]["param"] == "prompt_text"


@pytest.mark.parametrize(
    ("kind", "status"),
    [("application/json", 200), ("application/json; charset=utf-8", 200),
     ("Application/JSON ;x=y", 200), ("text/json", 400), ("text/plain", 400),
     ("application/jsonx", 400), ("application/x-www-form-urlencoded", 400)],
)  # fmt: skip
async def test_media_types(
    start_render_server: StartRenderServer, kind: str, status: int
) -> None:
    """Only JSON, whatever its parameters."""
    server = await start_render_server()
    body = json.dumps(HELLO).encode()
    got, answer, _ = await server.send(CHAT, body, **{"Content-Type": kind})
    assert got == status
    if status == 400:
        assert "Unsupported Media Type" in answer["error"]["message"]


async def test_the_flat_dialect(start_render_server: StartRenderServer) -> None:
    """TensorRT-LLM's errors: nothing nested, whoever refuses; any media type."""
    server = await start_render_server(render_dialect="trtllm", max_body=10_000)
    body = json.dumps(HELLO).encode()
    assert (await server.send(CHAT, body, **{"Content-Type": "text/plain"}))[0] == 200
    for path, sent, status in (
        (CHAT, b"{bad", 400),
        (CHAT, HELLO | {"model": "nope"}, 404),
        (CHAT, b"x" * 20_000, 413),
        ("/nothing", HELLO, 404),
    ):
        got, answer, _ = await server.send(path, sent)
        assert got == status
        assert answer.keys() == {"object", "message", "type", "param", "code"}
        assert (answer["object"], answer["code"]) == ("error", status)
        assert answer["type"].endswith("Error")
