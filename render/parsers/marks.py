"""Marks: the delimiters of a format, each as one character that no text contains.

A delimiter that is a token of the tokenizer is marked by its id, so the same letters in
a text are text. One that is not is found in the text, however that is cut.
"""

import re
from collections.abc import Iterable, Mapping

FIRST = 0xD800  # lone surrogates: UTF-8 has no way to say them
MOST = 0x800
MARK = re.compile(f"[{chr(FIRST)}-{chr(FIRST + MOST - 1)}]")


class Marks:
    """The marks of one format with one tokenizer.

    `by_id` is what ids are replaced by; the others are looked for in the text. Those
    that are `spelled` otherwise by the tokenizer still go by their own names.
    """

    def __init__(
        self,
        delimiters: Iterable[str],
        added_ids: Mapping[str, int],
        spelled: Mapping[str, str] | None = None,
    ) -> None:
        self._marks = {
            text: chr(FIRST + place)
            for place, text in enumerate(dict.fromkeys(delimiters))
        }
        spelled = spelled or {}
        written = {spelled.get(text, text): mark for text, mark in self._marks.items()}
        self.by_id = {
            added_ids[text]: mark for text, mark in written.items() if text in added_ids
        }
        self._texts = {ord(mark): text for text, mark in written.items()}
        self._in_text = {
            text: mark for text, mark in written.items() if text not in added_ids
        }
        longest_first = sorted(self._in_text, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._firsts = {text[0] for text in self._in_text}
        self._longest = max(map(len, self._in_text), default=0)

    @property
    def texts(self) -> dict[str, str]:
        """The delimiter that each mark stands for."""
        return {chr(mark): text for mark, text in self._texts.items()}

    def of(self, delimiter: str) -> str:
        """The mark of a delimiter."""
        return self._marks[delimiter]

    def plain(self, marked: str) -> str:
        """The text again, with the delimiters written out."""
        return marked.translate(self._texts) if MARK.search(marked) else marked

    def written(self, mark: str) -> str:
        """What stands in the text for a character: a delimiter, or itself."""
        return self._texts.get(ord(mark), mark)

    def whole(self, text: str) -> str:
        """A whole text with its marks."""
        finder = self.finder()
        return finder.feed(text) + finder.end()

    def finder(self) -> "Finder":
        """Finds the delimiters that are no tokens in one answer's text."""
        return Finder(self._pattern, self._in_text, self._firsts, self._longest)


class Finder:
    """Puts marks into a text as it comes; keeps back what may become a delimiter."""

    def __init__(
        self,
        pattern: re.Pattern[str],
        marks: Mapping[str, str],
        firsts: Iterable[str],
        longest: int,
    ) -> None:
        self._pattern = pattern
        self._marks = marks
        self._firsts = tuple(firsts)
        self._longest = longest
        self._kept = ""

    def feed(self, text: str) -> str:
        """The marked text that is certain by now."""
        if not self._marks:
            return text
        text = self._kept + text
        # What may go on as a longer delimiter is not replaced by a shorter one yet.
        end = self._certain(text)
        self._kept = ""
        marked, start = [], 0
        for match in self._pattern.finditer(text):
            if match.start() >= end:
                break
            marked += [text[start : match.start()], self._marks[match.group()]]
            start = match.end()
        end = max(start, end)
        self._kept = text[end:]
        return "".join(marked) + text[start:end]

    def end(self) -> str:
        """What was kept back, at the end of the answer."""
        text, self._kept = self._kept, ""
        return self._pattern.sub(lambda match: self._marks[match.group()], text)

    def _certain(self, text: str) -> int:
        """Where the first delimiter may begin that is not whole yet."""
        window = max(0, len(text) - self._longest + 1)
        starts = sorted(
            place for first in self._firsts for place in _places(text, first, window)
        )
        for start in starts:
            rest = text[start:]
            if any(len(m) > len(rest) and m.startswith(rest) for m in self._marks):
                return start
        return len(text)


def _places(text: str, character: str, start: int) -> Iterable[int]:
    place = text.find(character, start)
    while place >= 0:
        yield place
        place = text.find(character, place + 1)
