"""The generated part of the README."""

from gateway.config import Config
from gateway.options import markdown_table
from gateway.readme import with_options

FRAME = "before\n<!-- options -->\n{}<!-- /options -->\nafter \\1\n"


def test_only_the_table_changes() -> None:
    """Whatever stood between the marks is replaced; the rest stays."""
    wanted = FRAME.format(markdown_table(Config))
    assert with_options(FRAME.format("old\nrows\n")) == wanted
    assert with_options(wanted) == wanted


def test_without_marks() -> None:
    """A text without the marks is left alone."""
    assert with_options("nothing here") == "nothing here"
