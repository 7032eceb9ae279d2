"""The code of docs/python.md runs as it is."""

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "python.md"


def test_code(model_dir: Path) -> None:
    """Each block, on the model of the tests."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 1
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {"MODEL": model_dir})
