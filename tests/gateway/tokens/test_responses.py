"""Responses by a worker that takes token ids only, as OpenAI's own client sees them."""

from pathlib import Path
from typing import Any

import openai
import pytest

from tests.gateway.tokens.rig import TOKENS, answering
from tests.running import MODEL, Running, StartGateway, StartWorker

TOOL: Any = {
    "type": "function",
    "name": "tide",
    "parameters": {"type": "object", "properties": {"harbour": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "tide", "arguments": {"harbour": "Oslo"}}\n</tool_call>'
SAID = f"<think>\nIt asks.\n</think>\n\nOne moment.\n{CALL}"


@pytest.fixture
async def gateway(
    start_worker: StartWorker, start_gateway: StartGateway, tmp_path: Path
) -> Running:
    """One before a worker that reasons, speaks and calls."""
    answer = {"match": "tide", "output_text": SAID}
    worker = await start_worker(answering(TOKENS, tmp_path / "answers", answer))
    parsers = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
    return await start_gateway(worker, **parsers)


def client_of(gateway: Running) -> openai.AsyncOpenAI:
    """OpenAI's client."""
    return openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key="none")


async def test_a_whole_response(gateway: Running) -> None:
    """Reasoning, a message and a call are items of it."""
    async with client_of(gateway) as client:
        told = await client.responses.create(
            model=MODEL, input="When is the tide?", tools=[TOOL]
        )
    reasoning, message, call = told.output
    assert reasoning.type == "reasoning"
    assert reasoning.content is not None
    assert reasoning.content[0].text.strip() == "It asks."
    assert message.type == "message"
    assert told.output_text.strip() == "One moment."
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("tide", '{"harbour": "Oslo"}')
    assert told.status == "completed"
    assert told.usage is not None
    assert told.usage.output_tokens_details.reasoning_tokens > 2
    assert told.usage.total_tokens > told.usage.output_tokens > 10


async def test_a_streamed_response(gateway: Running) -> None:
    """The events make up what the last one tells."""
    async with (
        client_of(gateway) as client,
        await client.responses.create(
            model=MODEL, input="When is the tide?", tools=[TOOL], stream=True
        ) as stream,
    ):
        events: list[Any] = [event async for event in stream]
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == 3
    assert kinds.count("response.output_item.done") == 3
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    last = events[-1]
    assert last.type == "response.completed"
    assert text == last.response.output_text
    items = [e.item for e in events if e.type == "response.output_item.done"]
    assert items == last.response.output
    assert [e.sequence_number for e in events] == list(range(len(events)))


async def test_fields_of_other_routes_mean_nothing(gateway: Running) -> None:
    """There is one answer, whatever `n` says."""
    async with gateway.client.post(
        f"{gateway.url}/v1/responses",
        json={"model": MODEL, "input": "hi", "n": 3, "max_output_tokens": 4},
    ) as response:
        assert response.status == 200, await response.text()
        assert len((await response.json())["output"]) == 1


async def test_an_answer_that_is_cut_is_incomplete(gateway: Running) -> None:
    """And says why."""
    async with client_of(gateway) as client:
        told = await client.responses.create(
            model=MODEL, input="Hello", max_output_tokens=3
        )
    assert told.status == "incomplete"
    assert told.incomplete_details is not None
    assert told.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(
    "fields", [{"previous_response_id": "resp_1"}, {"background": True}]
)
async def test_what_needs_a_store_is_refused(gateway: Running, fields: Any) -> None:
    """Nothing is stored."""
    async with client_of(gateway) as client:
        with pytest.raises(openai.BadRequestError, match=next(iter(fields))):
            await client.responses.create(model=MODEL, input="Hello", **fields)
