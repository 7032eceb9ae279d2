"""Seeded, readable English of a support desk: what simulated chats are made of.

Sentences are put together from parts that fit each other. No model writes them, and
nothing here reads or writes a file.
"""

from random import Random

_SUBJECTS = (
    "the billing service", "the customer's workspace", "the export job",
    "the mobile app", "the nightly import", "the payment provider", "the search index",
    "the shared calendar", "the sign-in page", "the sync client", "the team's quota",
    "the webhook endpoint", "the audit log", "the invoice archive",
    "the delivery tracker", "the notification queue", "the file preview",
    "the access token", "the partner portal", "the reporting dashboard",
)  # fmt: skip
_FINDINGS = (
    "returned an error during the last maintenance window",
    "has been waiting for a confirmation since this morning",
    "was limited because too many requests arrived at once",
    "shows an older version than the one saved yesterday",
    "stopped after the certificate was renewed",
    "accepts the change but does not show it in the list",
    "needs the owner's approval before it can continue",
    "was moved to another region last week",
    "works again once the browser's cached data is removed",
    "reports two different totals for the same period",
    "was started twice by two administrators",
    "cannot reach the address that was entered in the settings",
)
_ACTIONS = (
    "open the settings and check the time zone first",
    "ask for the order number and the date of the last change",
    "compare the totals with the invoice archive",
    "restart the connection and wait for two minutes",
    "remove the old device and add it again",
    "send the customer the form for a refund",
    "read the audit log from the first failed attempt onwards",
    "repeat the export with a smaller range of dates",
    "confirm the address and renew the access token",
    "note the error code and pass the case to the second line",
    "offer to move the appointment to the next working day",
    "switch off the filter and load the list once more",
)
_REASONS = (
    "because the cached copy may be an hour old",
    "since nothing is lost by trying it again",
    "so that both sides see the same numbers",
    "as the change takes effect only after the next sync",
    "because the other team needs the exact time",
    "so that the customer is not charged twice",
    "as long as the contract allows it",
    "unless the account belongs to a partner",
)
_QUESTIONS = (
    "What should I do next?", "Is any of my data lost?", "How long will this take?",
    "Can you check it on your side?", "Do I have to start again?",
    "Who has to approve that?", "Will I be charged for it?",
    "Could you explain that step again?", "Where do I find that setting?",
)  # fmt: skip
_OPENERS = (
    "Thanks, that helps.", "I tried what you said.", "Something else came up.",
    "Here is what I see now.", "One more question about this case.",
    "Sorry for the late answer.", "That worked only in part.",
)  # fmt: skip


def statement(rng: Random) -> str:
    """A finding about some part of the system."""
    return f"{_capital(rng.choice(_SUBJECTS))} {rng.choice(_FINDINGS)}."


def advice(rng: Random) -> str:
    """One step an agent should take, sometimes with the reason."""
    when = f"If {rng.choice(_SUBJECTS)} {rng.choice(_FINDINGS)}, "
    reason = f", {rng.choice(_REASONS)}" if rng.random() < 0.5 else ""
    step = rng.choice(_ACTIONS)
    return (
        f"{when}{step}{reason}." if rng.random() < 0.5 else f"{_capital(step)}{reason}."
    )


def paragraph(rng: Random, sentences: int) -> str:
    """Statements and advice in turn."""
    writers = (statement, advice)
    return " ".join(writers[number % 2](rng) for number in range(sentences))


def question(rng: Random, sentences: int, *, opened: bool) -> str:
    """What a customer writes: some findings with details, and a question.

    `opened`: the chat is under way, so it begins with a word on the last answer.
    """
    details = [
        f"{statement(rng)} The reference is {rng.choice('ABCDEFGH')}"
        f"{rng.randrange(10_000, 100_000)}."
        for _ in range(sentences)
    ]
    start = rng.choice(_OPENERS) if opened else "Hello, I need some help."
    return " ".join((start, *details, rng.choice(_QUESTIONS)))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
