"""Raw content: what of a body it is made of, and that equal beginnings meet by it."""

import json
from typing import Any

import pytest
from aiohttp import web

from gateway.request.content import content_of
from gateway.request.peek import peek_small
from gateway.request.rendering import TOO_LARGE
from kvindex.blocks import Namespace
from router import Rendering
from router.worker import CONTENT_PIECES
from tests.gateway.answering import Scripted
from tests.running import Running, StartGateway, StartWorker

PREFIX = "Which harbour is the oldest that is still in use, and who says so? " * 30
PREFIX_TOKENS = len(PREFIX) // 4
IDS = [1000 + ord(character) for character in PREFIX]
ROOT = Namespace(model="m")


def _user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def _of(body: dict[str, Any]) -> Rendering:
    content = content_of(peek_small(json.dumps(body).encode()), ROOT)
    assert content is not None
    return content


def _block(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


BODIES: dict[str, tuple[str, Any]] = {
    "system": (
        "/v1/messages",
        lambda a, q: {"system": a, "messages": _user(q)},
    ),
    "system blocks": (
        "/v1/messages",
        lambda a, q: {"messages": _user(q), "system": _block(a)},
    ),
    "instructions": (
        "/v1/responses",
        lambda a, q: {"instructions": a, "input": _user(q), "text": {"format": {}}},
    ),
    "developer": (
        "/v1/responses",
        lambda a, q: {"input": [{"role": "developer", "content": a}, *_user(q)]},
    ),
    "text": ("/generate", lambda a, q: {"text": a + q}),
    "prompts": ("/v1/completions", lambda a, q: {"prompt": [a + q, q]}),
    "documents of a chat": (
        "/v1/chat/completions",
        lambda a, q: {"documents": [{"text": a}], "messages": _user(q)},
    ),
    "embeddings": ("/v1/embeddings", lambda a, q: {"input": [a + q]}),
    "rerank": ("/v1/rerank", lambda a, q: {"query": a, "documents": [q, q]}),
    "score": ("/v1/score", lambda a, q: {"text_1": a, "text_2": [q, q]}),
    "score, as it is now": ("/score", lambda a, q: {"queries": a, "items": [q, q]}),
    "embed": ("/v2/embed", lambda a, q: {"texts": [a + q]}),
}


@pytest.mark.parametrize("name", BODIES)
def test_all_of_a_prompt_counts(name: str) -> None:
    """For affinity and for its length, wherever an endpoint has it."""
    make = BODIES[name][1]
    first, second = _of(make(PREFIX, "and why?")), _of(make(PREFIX, "since when?"))
    other = _of(make(f"x{PREFIX}", "and why?"))
    shared = len(PREFIX) // 256 - 1
    assert first.hashes[:shared] == second.hashes[:shared]
    assert first.hashes[0] != other.hashes[0]
    assert PREFIX_TOKENS < first.token_count < PREFIX_TOKENS + 60


@pytest.mark.parametrize("name", ["input_ids", "token_ids", "prompt_token_ids"])
def test_ids_count_where_they_are_not_read(name: str) -> None:
    """A call with ids that finds no time to be hashed by them."""
    first, second = _of({name: [*IDS, 1, 2]}), _of({name: [*IDS, 3]})
    shared = len(str(IDS)) // 256 - 1
    assert first.hashes[:shared] == second.hashes[:shared]


def test_tools_and_system_come_before_messages() -> None:
    """In whatever order a body has them, as templates put them first."""
    parts = {"tools": [{"name": PREFIX}], "system": PREFIX, "messages": _user("hi")}
    backwards = dict(reversed(list(parts.items())))
    assert _of(parts).hashes == _of(backwards).hashes
    changed = _of(parts | {"system": f"x{PREFIX}"}).hashes
    tools = len(PREFIX) // 256
    assert changed[:tools] == _of(parts).hashes[:tools]
    assert changed[tools + 1] != _of(parts).hashes[tools + 1]


def test_a_conversation_goes_on_where_it_ended() -> None:
    """All whole pieces of a turn are the next turn's."""
    first = {"system": "You are brief.", "messages": _user(PREFIX)}
    more = [{"role": "assistant", "content": "Oh."}, *_user("And then?")]
    second = first | {"messages": [*_user(PREFIX), *more]}
    hashes = _of(first).hashes
    assert _of(second).hashes[: len(hashes)] == hashes


@pytest.mark.parametrize("blocks", [True, False])
def test_a_billing_line_is_left_out(blocks: bool) -> None:
    """It is new in each request, and the engine leaves it out, too."""

    def billed(number: int) -> dict[str, Any]:
        line = f"x-anthropic-billing-header: cc_version=2.1; cch={number};"
        if blocks:
            return {"system": _block(line) + _block(PREFIX), "messages": _user("hi")}
        return {"system": f"{line}\n{PREFIX}", "messages": _user("hi")}

    assert _of(billed(1)).hashes == _of(billed(22222)).hashes


def test_a_body_that_shows_no_prompt_has_none() -> None:
    """It is routed by its size."""
    assert content_of(peek_small(b'{"model": "m", "messages": null}'), ROOT) is None


def test_one_prompt_takes_no_more_than_half_of_the_table() -> None:
    """However long it is; its length counts whole."""
    content = _of({"prompt": "x" * 9_000_000})
    assert len(content.hashes) == CONTENT_PIECES // 2
    assert content.token_count == 9_000_000 // 4


async def _anything(request: web.Request) -> web.StreamResponse:
    if request.path == "/v1/models":
        return web.json_response({"object": "list", "data": [{"id": "m"}]})
    known = request.method == "POST"
    return web.json_response({}, status=200 if known else 404)


async def _sent(gateway: Running, path: str, body: dict[str, Any]) -> tuple[str, int]:
    """Where a request went, and how long its prompt was taken to be."""
    await gateway.post(path, {"model": "m", **body})
    decision = (await gateway.get("/gateway/recent"))["decisions"][0]
    return decision["worker"], decision["prompt_tokens"]


@pytest.mark.parametrize("name", ["system", "instructions", "text", "rerank"])
async def test_requests_go_where_their_prefix_is(
    start_gateway: StartGateway, scripted: Scripted, name: str
) -> None:
    """Tenants spread, and each stays where its long prefix is."""
    urls = [await scripted(_anything) for _ in range(3)]
    gateway = await start_gateway(*urls, render="never")
    path, make = BODIES[name]
    homes: dict[int, set[str]] = {}
    for question in ("and why?", "since when?"):
        for tenant in (0, 1, 2, 3, 4, 5) if "why" in question else (3, 5, 1, 0, 4, 2):
            body = make(f"{tenant}: {PREFIX}", question)
            worker, tokens = await _sent(gateway, path, body)
            homes.setdefault(tenant, set()).add(worker)
            assert PREFIX_TOKENS < tokens < PREFIX_TOKENS + 60
    assert all(len(home) == 1 for home in homes.values())
    assert set.union(*homes.values()) == set(urls)


async def test_a_turn_too_large_to_be_rendered_finds_its_worker(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The turns before it were rendered, and their content was noted all the same."""
    workers = [await start_worker() for _ in range(3)]
    gateway = await start_gateway(*workers, max_render_bytes=3_000)
    chats = [_user(f"{number}: {PREFIX}") for number in range(6)]
    firsts = [await gateway.chat(chat) for chat in chats]
    assert await gateway.metric("not_rendered_total", reason=TOO_LARGE) == 0
    assert len({first.worker for first in firsts}) == 3
    for chat, first in reversed(list(zip(chats, firsts, strict=True))):
        chat += [{"role": "assistant", "content": first.text}, *_user(PREFIX)]
        assert (await gateway.chat(chat)).worker == first.worker
    assert await gateway.metric("not_rendered_total", reason=TOO_LARGE) == 6
