"""SGLang's own `/generate`: a text or ids in, text and ids out."""

import json
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from kvindex.blocks import unpack_ids
from simworker.server import SimWorker
from tests.simworker import captures

TEXT = "The lighthouse keeper counts the ships that pass at night."


async def generate(
    client: aiohttp.ClientSession, worker: SimWorker, **body: Any
) -> tuple[int, Any]:
    """Status, and the JSON or the events of an answer."""
    asked = {"sampling_params": {"max_new_tokens": 5}} | body
    async with client.post(worker.url + "/generate", json=asked) as response:
        text = await response.text()
        if response.content_type == "text/event-stream":
            return response.status, captures.sse_events(text)
        return response.status, json.loads(text)


async def test_text_and_its_ids_are_answered_alike(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """The same text, the same ids, and the counts of tokens."""
    (rendered,) = worker.renderer.render_completion({"prompt": TEXT})
    ids = unpack_ids(rendered.token_ids)
    _, of_text = await generate(client, worker, text=TEXT, rid="r")
    _, of_ids = await generate(client, worker, input_ids=ids)
    assert of_text["output_ids"] == of_ids["output_ids"]
    assert of_text["text"] == of_ids["text"] != ""
    info = of_text["meta_info"]
    assert info["id"] == "r"
    assert info["finish_reason"] == {"type": "length", "length": 5}
    assert (info["prompt_tokens"], info["completion_tokens"]) == (len(ids), 5)


async def test_a_streams_events_repeat_what_was_said(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """The last one has all of it."""
    _, whole = await generate(client, worker, text=TEXT)
    _, events = await generate(client, worker, text=TEXT, stream=True)
    *events, done = events
    assert done == "[DONE]"
    assert events[-1]["text"] == whole["text"]
    for before, after in pairwise(events):
        assert after["text"].startswith(before["text"])
        assert before["meta_info"]["finish_reason"] is None


async def test_several_prompts_are_a_list(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """An answer for each, in their order."""
    _, answers = await generate(client, worker, input_ids=[[1, 2, 3], [4, 5]])
    assert [one["meta_info"]["prompt_tokens"] for one in answers] == [3, 2]


@pytest.mark.parametrize("body", [{}, {"text": "a", "input_ids": [1]}])
async def test_one_of_text_and_ids_is_needed(
    client: aiohttp.ClientSession, worker: SimWorker, body: Any
) -> None:
    """Neither, or both, is an error."""
    status, _ = await generate(client, worker, **body)
    assert status == 400
