"""What ruff cannot see of the house rules in CONTRIBUTING.md."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = (
    "bench",
    "deploy",
    "gateway",
    "kvindex",
    "render",
    "router",
    "simworker",
    "tests",
)
LINES = 300


def test_files_are_short() -> None:
    """Under 300 lines, tests too; whoever writes the 300th splits the file."""
    paths = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(paths) > 500
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in paths}
    long = {path.name: lines for path, lines in lengths.items() if lines >= LINES}
    assert not long
