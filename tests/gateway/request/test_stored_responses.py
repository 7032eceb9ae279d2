"""Stored responses: who made them, and that requests on them return there."""

import pytest

from gateway.request.stored_responses import ResponseId, StoredResponses, named_in
from tests.gateway.answering import Answering, Scripted
from tests.gateway.makers import Maker, make
from tests.running import StartGateway

STREAM = (
    b'event: response.created\ndata: {"type":"response.created","response":'
    b'{"id":"resp_0a1","object":"response"}}\n\n'
    b'data: {"type":"response.output_item.added","item":{"id":"msg_1"}}\n\n'
)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (b"/v1/responses/resp_1", b"resp_1"),
        (b"/v1/responses/resp_1?stream=true", b"resp_1"),
        (b"/v1/responses/resp_1/cancel", b"resp_1"),
        (b"/v1/responses/resp_1/input_items?limit=2", b"resp_1"),
        (b"/v1/responses/resp%5F1", b"resp_1"),
        (b"/v1/responses", None),
        (b"/v1/responses?x=1", None),
        (b"/v1/responses/", None),
        (b"/v1/chat/completions", None),
    ],
)
def test_what_a_path_names(path: bytes, named: bytes | None) -> None:
    """The response after `/v1/responses/`."""
    assert named_in(path) == named


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b'{"id": "resp_1", "output": []}', b"resp_1"),
        (b'{"object":"response","id":"resp_1"}', b"resp_1"),
        (STREAM, b"resp_0a1"),
        (b'{"id": "chatcmpl-1"}', None),
        (b'{"text": "\\"id\\": \\"resp_1\\""}', None),
        (b'{"id": "resp_%b"}' % (b"x" * 400), None),
        (b"", None),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_ids_are_learnt_from_answers(
    answer: bytes, found: bytes | None, size: int
) -> None:
    """JSON and streams, in pieces of any size; what a model wrote is none."""
    stored = StoredResponses()
    look = ResponseId(stored, "w1")
    for start in range(0, len(answer), size):
        look.feed(answer[start : start + size])
    assert len(stored) == (0 if found is None else 1)
    if found is not None:
        assert stored.maker(found) == "w1"


def test_only_the_beginning_is_looked_at() -> None:
    """A long answer without id costs no more than a short one."""
    stored = StoredResponses()
    look = ResponseId(stored, "w1")
    look.feed(b"x" * 70_000)
    look.feed(b'{"id": "resp_1"}')
    assert len(stored) == 0


def test_the_table_is_bounded() -> None:
    """What was made or asked for longest ago is forgotten."""
    stored = StoredResponses(most=3)
    for number in range(3):
        stored.made(b"resp_%d" % number, "w1")
    assert stored.maker(b"resp_0") == "w1"
    stored.made(b"resp_3", "w2")
    assert len(stored) == 3
    assert [stored.maker(b"resp_%d" % n) for n in range(4)] == ["w1", None, "w1", "w2"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_requests_on_a_response_return_to_its_worker(
    start_gateway: StartGateway, scripted: Scripted, streamed: bool
) -> None:
    """Whatever the policy: those that go on with it, read, cancel or delete it."""
    makers = [Maker("a"), Maker("b"), Maker("c")]
    urls = [await scripted(maker.answer) for maker in makers]
    gateway = await start_gateway(*urls, policy="round_robin")
    first = [await make(gateway, stream=streamed) for _ in range(3)]
    assert sorted(first) == ["resp_a_0", "resp_b_0", "resp_c_0"]
    for _ in range(3):
        for made in first:
            again = await make(gateway, previous_response_id=made, stream=streamed)
            assert again.split("_")[1] == made.split("_")[1]
    for made in first:
        by = {"by": made.split("_")[1]}
        assert await gateway.get(f"/v1/responses/{made}") == by
        assert await gateway.post(f"/v1/responses/{made}/cancel", {}) == by
        async with gateway.client.delete(
            f"{gateway.url}/v1/responses/{made}"
        ) as deleted:
            assert await deleted.json() == by


async def test_an_unknown_response_goes_anywhere(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """Each worker is asked for it, and none has it: the answer is a worker's."""
    makers = [Maker("a"), Maker("b")]
    gateway = await start_gateway(*[await scripted(maker.answer) for maker in makers])
    answer = await gateway.get("/v1/responses/resp_other", status=404)
    assert answer["by"] in ("a", "b")
    assert sum(len(maker.asked) for maker in makers) == 3


@pytest.mark.parametrize("refusal", [429, 503])
async def test_a_busy_makers_word_is_the_clients(
    start_gateway: StartGateway, scripted: Scripted, refusal: int
) -> None:
    """No other worker is asked: it would say that there is no such response."""
    makers = [Maker("a"), Maker("b")]
    urls = [await scripted(maker.answer) for maker in makers]
    gateway = await start_gateway(*urls, policy="round_robin")
    made = await make(gateway)
    maker, other = makers if made.startswith("resp_a") else reversed(makers)
    maker.refusal, asked = refusal, len(other.asked)
    path = f"/v1/responses/{made}"
    further = {"model": "m", "input": "more", "previous_response_id": made}
    said = {"error": {"message": f"{maker.name} is busy"}}
    assert await gateway.get(path, status=refusal) == said
    assert await gateway.post(f"{path}/cancel", {}, status=refusal) == said
    assert await gateway.post("/v1/responses", further, status=refusal) == said
    assert len(other.asked) == asked
    assert await gateway.metric("retries_total") == 0
    elsewhere = await make(gateway)  # what is new may go anywhere
    assert elsewhere.startswith(f"resp_{other.name}")


async def test_a_maker_that_is_gone(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """502, which may be tried later: not the 404 of somebody else."""
    leaving, gone, other = Answering(), Maker("gone"), Maker("other")
    url = await leaving.start(gone.answer)
    gateway = await start_gateway(
        url, await scripted(other.answer), policy="round_robin"
    )
    made = next(
        made
        for made in [await make(gateway), await make(gateway)]
        if made.startswith("resp_gone")
    )
    await leaving.stop()
    asked = len(other.asked)
    answer = await gateway.get(f"/v1/responses/{made}", status=502)
    assert answer["error"]["code"] == "upstream_connect_failed"
    assert len(other.asked) == asked
