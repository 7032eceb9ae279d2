"""How many ids of an answer are reasoning, as usage tells them.

Delimiters do not count. They are known by their ids: where a tokenizer has none for
them, all ids count until the reasoning is known to be over some other way.
"""

from collections.abc import Iterable

from render.parsers.marks import Marks
from render.parsers.reasoning import ReasoningFormat


class ReasoningCounter:
    """Counts one answer's ids, as they come."""

    def __init__(self, format: ReasoningFormat, marks: Marks, *, inside: bool) -> None:
        """`inside`: the answer begins inside its reasoning."""
        self.tokens = 0
        self._inside = inside
        self._opens = _ids(marks, format.opens)
        self._closes = _ids(marks, format.closes)

    def feed(self, token_ids: Iterable[int]) -> None:
        """Count these."""
        for token_id in token_ids:
            if token_id in self._closes:
                self._inside = False
            elif token_id in self._opens:
                self._inside = True
            else:
                self.tokens += self._inside


def _ids(marks: Marks, texts: Iterable[str]) -> frozenset[int]:
    wanted = {marks.of(text) for text in texts}
    return frozenset(id_ for id_, mark in marks.by_id.items() if mark in wanted)
