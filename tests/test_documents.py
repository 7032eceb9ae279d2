"""The generated parts of the documents are those of today."""

import re

import pytest

from gateway.request import describe, rendering
from render import REASONS
from tests.documents import PARTS, ROOT, files, with_part


@pytest.mark.parametrize(("document", "mark"), list(PARTS))
def test_nothing_would_change(document: str, mark: str) -> None:
    """`python -m tests.documents` was run after the last change."""
    text = (ROOT / document).read_text()
    assert text.count(f"<!-- {mark} -->") == text.count(f"<!-- /{mark} -->") == 1
    assert with_part(text, mark, PARTS[document, mark]()) == text


def test_each_file_is_told_in_a_sentence() -> None:
    """The first line of its docstring is one, not the half of one."""
    rows = [row for row in files().splitlines() if row.startswith("| `")]
    assert not [row for row in rows if not row.endswith((". |", "? |", "! |"))]


def test_only_the_part_changes() -> None:
    """Whatever stood between the marks is replaced; the rest stays."""
    frame = "before\n<!-- x -->\n{}<!-- /x -->\nafter \\1\n"
    wanted = frame.format("new \\1\n")
    assert with_part(frame.format("old\nrows\n"), "x", "new \\1\n") == wanted
    assert with_part("nothing here", "x", "new") == "nothing here"


def test_every_reason_is_named() -> None:
    """Why requests are not rendered: all the words that code can say."""
    ours = {
        value
        for module in (describe, rendering)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    problems = {"empty", "not_json", "not_object", "too_deep", "too_complex"}
    page = (ROOT / "docs" / "metrics.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    assert (ours | problems | set(REASONS)) <= named
