"""786 real chat templates with chats of many forms, as transformers renders them."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from render.switches import SWITCHES
from tests.render import matrix
from tests.render.matrix_chats import CHATS

PROCESSES = 2


@pytest.mark.timeout(300)
def test_as_transformers(capsys: pytest.CaptureFixture[str]) -> None:
    """Texts and ids are equal, or a switch of a release explains the difference."""
    paths = matrix.templates()
    parts = [paths[start::PROCESSES] for start in range(PROCESSES)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, context) as pool:
        cases = [case for part in pool.map(matrix.compared, parts) for case in part]
    report = matrix.report(cases)
    with capsys.disabled():
        sys.stdout.write(f"\n{len(paths)} templates, {len(CHATS)} chats\n{report}\n")
    assert len(cases) == len(paths) * len(CHATS) > 40_000
    outcomes = {case.outcome for case in cases}
    assert matrix.UNEXPLAINED not in outcomes
    # Each of the switches is seen at work.
    assert outcomes >= {matrix.EQUAL, matrix.REFUSED, *SWITCHES}
