"""The demo's traffic: seeded chats of a support desk, turn by turn. Pure data, no I/O.

Many customers share a few long system prompts (one for each product's handbook). A
chat's next turn holds everything said before, the assistant's actual answers too, so
it can be built only while the chat runs: `Session.messages`.
"""

from collections.abc import Sequence
from random import Random

import msgspec

from simworker import prose

PRODUCTS = ("Harbour", "Lantern", "Meridian", "Orchard", "Quarry", "Tideline")
SECTIONS = (
    "Greeting the customer",
    "Access and sign-in",
    "Billing and refunds",
    "Exports and reports",
    "Sync and devices",
    "Escalation",
    "Closing the case",
)
SECONDS_A_DAY = 86_400

Message = dict[str, str]


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What the customer says next, `gap_s` seconds after the last answer's end."""

    message: str
    gap_s: float
    max_tokens: int


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One customer's chat; its first turn comes `start_s` seconds into the run."""

    name: str
    start_s: float
    system: str
    turns: tuple[Turn, ...]

    def messages(self, answers: Sequence[str]) -> list[Message]:
        """The messages of the turn that follows `answers`, all those so far."""
        messages = [{"role": "system", "content": self.system}]
        for number, turn in enumerate(self.turns[: len(answers) + 1]):
            messages.append({"role": "user", "content": turn.message})
            if number < len(answers):
                messages.append({"role": "assistant", "content": answers[number]})
        return messages


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How large the traffic is; ranges are inclusive, times in seconds.

    Sessions start at random over `arrival_s`; gaps between turns are exponential with
    mean `gap_s`, at most three times that. One sentence has about 17 tokens, one log
    line about 40.
    """

    products: int = 4
    system_sentences: tuple[int, int] = (28, 50)
    turns: tuple[int, int] = (4, 7)
    question_sentences: tuple[int, int] = (2, 4)
    log_lines: tuple[int, int] = (10, 24)
    max_tokens: tuple[int, int] = (60, 160)
    arrival_s: float = 12.0
    gap_s: float = 1.0


DEFAULT_SHAPE = Shape()


def generate(seed: int, sessions: int, shape: Shape = DEFAULT_SHAPE) -> list[Session]:
    """`sessions` chats in the order they start; the same for the same arguments."""
    rng = Random(seed)
    names = rng.sample(PRODUCTS, shape.products)
    systems = [_handbook(rng, name, shape) for name in names]
    starts = sorted(rng.uniform(0.0, shape.arrival_s) for _ in range(sessions))
    return [
        Session(
            name=f"chat-{number:03}",
            start_s=start,
            system=rng.choice(systems),
            turns=_turns(rng, shape),
        )
        for number, start in enumerate(starts)
    ]


def request_count(sessions: Sequence[Session]) -> int:
    """The turns of all sessions."""
    return sum(len(session.turns) for session in sessions)


def _turns(rng: Random, shape: Shape) -> tuple[Turn, ...]:
    turns = []
    for number in range(rng.randint(*shape.turns)):
        gap = min(rng.expovariate(1.0 / shape.gap_s), 3 * shape.gap_s)
        turns.append(
            Turn(
                message=_message(rng, shape, first=number == 0),
                gap_s=gap if number else 0.0,
                max_tokens=rng.randint(*shape.max_tokens),
            )
        )
    return tuple(turns)


def _message(rng: Random, shape: Shape, *, first: bool) -> str:
    text = prose.question(rng, rng.randint(*shape.question_sentences), opened=not first)
    return f"{text}\n\nThis is what the log shows:\n{_log(rng, shape)}"


def _log(rng: Random, shape: Shape) -> str:
    second = rng.randrange(SECONDS_A_DAY // 2)
    lines = []
    for _ in range(rng.randint(*shape.log_lines)):
        second += rng.randint(1, 90)
        hours, rest = divmod(second, 3600)
        clock = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
        case = rng.randrange(100_000, 1_000_000)
        lines.append(f"{clock} case {case}: {prose.statement(rng)}")
    return "\n".join(lines)


def _handbook(rng: Random, product: str, shape: Shape) -> str:
    """A system prompt: what an agent of one product must know."""
    sentences = rng.randint(*shape.system_sentences)
    parts = [
        f"You are a support agent for {product}. Answer in plain English, briefly, and "
        "one step at a time. Never promise a date. Follow this handbook."
    ]
    for number, section in enumerate(SECTIONS, start=1):
        share = max(1, sentences // len(SECTIONS))
        parts.append(f"{number}. {section}\n{prose.paragraph(rng, share)}")
    return "\n\n".join(parts)
