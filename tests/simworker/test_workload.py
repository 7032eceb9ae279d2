"""The demo's traffic: seeded, readable, growing by turns over shared prompts."""

import pytest

from kvindex.blocks import unpack_ids
from render import Renderer
from simworker.workload import DEFAULT_SHAPE, Session, generate, request_count


@pytest.fixture(scope="module")
def sessions() -> list[Session]:
    """A run of the demo's size."""
    return generate(seed=1, sessions=40)


def test_seeded(sessions: list[Session]) -> None:
    """The same arguments give the same traffic, another seed another."""
    assert generate(seed=1, sessions=40) == sessions
    assert generate(seed=2, sessions=40) != sessions


def test_sizes(sessions: list[Session], renderer: Renderer) -> None:
    """A few long system prompts are shared; everything is within its range."""
    systems = {session.system for session in sessions}
    assert 1 < len(systems) <= DEFAULT_SHAPE.products
    for system in systems:
        tokens = len(renderer.render_completion({"prompt": system})[0])
        assert 400 <= tokens <= 1500
    starts = [session.start_s for session in sessions]
    assert starts == sorted(starts)
    assert 0 <= starts[0] < starts[-1] <= DEFAULT_SHAPE.arrival_s
    assert len({session.name for session in sessions}) == 40
    least, most = DEFAULT_SHAPE.turns
    assert 40 * least <= request_count(sessions) <= 40 * most
    for session in sessions:
        assert session.turns[0].gap_s == 0
        gaps = [turn.gap_s for turn in session.turns]
        assert 0 <= min(gaps) <= max(gaps) <= 3 * DEFAULT_SHAPE.gap_s


def test_every_turn_continues_the_last(
    sessions: list[Session], renderer: Renderer
) -> None:
    """A turn's prompt begins with the last one's and the answer actually given."""
    session = sessions[0]
    answers: list[str] = []
    before: list[int] = []
    for number in range(len(session.turns)):
        messages = session.messages(answers)
        assert len(messages) == 2 + 2 * number
        assert messages[-1] == {
            "role": "user", "content": session.turns[number].message
        }  # fmt: skip
        prompt = unpack_ids(renderer.render_chat({"messages": messages}).token_ids)
        assert prompt[: len(before)] == before
        before = prompt
        answers.append(f"Answer {number}.")
    assert "Answer 0." in session.messages(answers)[2]["content"]
