"""What a worker answers: read, or refused without being repeated."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import MalformedAnswer
from gateway.tokens.generated import read_chunk
from gateway.tokens.logprobs import of_chat, of_completion

ALL = of_chat({"top_logprobs": -1})
VALUES: st.SearchStrategy[Any] = (
    st.none() | st.integers() | st.text(max_size=3) | st.just([]) | st.just({})
)


def position(token_id: int, rank: int, *others: int) -> dict[str, Any]:
    """The log probabilities of one position; the id that was taken comes first."""
    top = [{"token_id": one, "logprob": -1.0} for one in (token_id, *others)]
    taken = {"token_id": token_id, "logprob": -1.0, "rank": rank}
    return {**taken, "top_logprobs": top}


def shown(asked: dict[str, Any], entry: dict[str, Any], *, chat: bool) -> list[int]:
    """The ids that are shown of a position."""
    show = of_chat(asked) if chat else of_completion(asked)
    logprobs = {"content": [entry]}
    choice = {"index": 0, "token_ids": [1], "logprobs": logprobs}
    chunk = read_chunk(msgspec.json.encode({"choices": [choice]}), show)
    (told,) = chunk.choices[0]["logprobs"]["content"]
    return [one["token_id"] for one in told["top_logprobs"]]


def test_a_chat_shows_as_many_as_it_asked_for() -> None:
    """None, too."""
    entry = position(7, 1, 8, 9)
    assert shown({"top_logprobs": 2}, entry, chat=True) == [7, 8]
    assert shown({}, entry, chat=True) == []
    assert shown({"top_logprobs": -1}, entry, chat=True) == [7, 8, 9]


def test_a_completion_shows_what_was_taken_besides() -> None:
    """One more, if it is not among the likeliest."""
    assert shown({"logprobs": 2}, position(7, 2, 8, 9), chat=False) == [7, 8]
    assert shown({"logprobs": 2}, position(7, 40, 8, 9), chat=False) == [7, 8, 9]
    assert shown({"logprobs": 0}, position(7, 1, 8), chat=False) == [7]


@given(
    st.dictionaries(
        st.sampled_from(["index", "token_ids", "finish_reason", "logprobs"]), VALUES
    ),
    VALUES,
)
@settings(max_examples=300, deadline=None)
def test_any_chunk_is_read_or_malformed(choice: Any, usage: Any) -> None:
    """Nothing else happens."""
    data = msgspec.json.encode({"choices": [choice], "usage": usage})
    try:
        chunk = read_chunk(data, ALL)
    except MalformedAnswer:
        return
    assert chunk.choices[0]["index"] == choice["index"]


def test_what_is_wrong_is_not_repeated() -> None:
    """Only where it is."""
    choice = {"index": 0, "token_ids": ["secret"]}
    with pytest.raises(MalformedAnswer, match="choices") as error:
        read_chunk(msgspec.json.encode({"choices": [choice]}), ALL)
    assert "secret" not in str(error.value)


def test_names_of_tokens_are_read_as_ids() -> None:
    """Those of vLLM before 0.32."""
    top = [{"token": "token_id:7", "logprob": -1.0}]
    entry = {"token": "token_id:7", "logprob": -1.0, "top_logprobs": top}
    assert shown({"top_logprobs": 1}, entry, chat=True) == [7]


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"[1]", "all of it is not as it should be"),
        (b"null", "all of it is not as it should be"),
        (b'{"choices":[{"index":"x"}]}', ".choices[0].index is not as it should be"),
        (b"{", "no JSON"),
    ],
)
def test_what_is_wrong_is_told_by_its_place(data: bytes, place: str) -> None:
    """Without a word of what stands there, nor of how it was read."""
    with pytest.raises(MalformedAnswer) as raised:
        read_chunk(data, ALL)
    assert str(raised.value) == f"the worker's answer: {place}"
