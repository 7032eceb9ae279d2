"""Whether a rendered prompt leaves the model inside its reasoning.

A template may open the reasoning (`<think>`), or close it at once where the request
wants none. Only what follows the last special token counts: that is the answer's
beginning; the same marks further up are the history's or the user's.
"""

from collections.abc import Mapping

# Opening and closing marks by the name of the reasoning parser.
MARKS: Mapping[str, tuple[str, str]] = {
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "mistral": ("[THINK]", "[/THINK]"),
    "granite": ("Here is my thought process:", "Here is my response:"),
}
USUAL_MARKS = ("<think>", "</think>")


def marks(parser: str) -> tuple[str, str]:
    """The marks a reasoning parser looks for."""
    return MARKS.get(parser, USUAL_MARKS)


def reasoning_ended(answer_so_far: str, parser: str) -> bool | None:
    """Whether the reasoning is over; None if the prompt does not say.

    `answer_so_far` is the text after the prompt's last special token.
    """
    opening, closing = (answer_so_far.rfind(mark) for mark in marks(parser))
    if opening < 0 and closing < 0:
        return None
    return closing > opening
