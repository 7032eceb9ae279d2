"""The prompt before an answer: looked at once for all of its choices."""

from collections.abc import Sequence

from render.detokenizer import SEED_IDS, Vocabulary
from render.parsers.marks import Marks

LONGEST_TAIL = 4096  # ids of a prompt that are looked at for an opened reasoning


class Prompt:
    """The ids of a prompt; None: they are not known."""

    def __init__(self, ids: Sequence[int] | None) -> None:
        self._ids = ids
        self._tail: tuple[Marks, str] | None = None

    @property
    def seeds(self) -> Sequence[int]:
        """The last ids: whether the first token keeps its space is told by them."""
        return (self._ids or ())[-SEED_IDS:]

    def tail(self, vocabulary: Vocabulary, marks: Marks) -> str | None:
        """The marked text after the last turn's mark; None if there is no prompt."""
        if self._ids is None:
            return None
        if self._tail is None or self._tail[0] is not marks:
            self._tail = marks, _tail(self._ids[-LONGEST_TAIL:], vocabulary, marks)
        return self._tail[1]


def _tail(ids: Sequence[int], vocabulary: Vocabulary, marks: Marks) -> str:
    start = len(ids)
    turns = vocabulary.special_ids - marks.by_id.keys()
    while start > 0 and ids[start - 1] not in turns:
        start -= 1
    detokenizer = vocabulary.detokenizer(marks=marks.by_id, skip_special_tokens=False)
    return marks.whole(detokenizer.feed(ids[start:]))
