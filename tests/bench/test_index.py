"""The index benchmark: its work, both sides' contract, its tables."""

import random
import sys

import pytest

from bench import _index_cell, index
from bench._index_cell import churn_cell, hash_cell, tree_cell
from bench._index_sides import Ours
from bench._index_work import KINDS, RUN, Stored, Work, chains


def test_work_is_the_same_for_all() -> None:
    """One seed, one forest; parents come before what is below them."""
    work, again = Work(1, 4, 5_000), Work(1, 4, 5_000)
    events = list(work.stored())
    assert events == list(again.stored())
    assert sum(len(event.blocks) for event in events) == work.entries
    known: dict[int, set[int | None]] = {worker: {None} for worker in range(4)}
    for event in events:
        assert event.parent in known[event.worker]
        known[event.worker] |= {name for name, _ in event.blocks}
    queries = work.queries(5)
    assert list(queries) == list(KINDS)
    assert queries == again.queries(5)


def test_ours_answers_as_brute_force_does() -> None:
    """For every query, the workers and how far each holds it."""
    work, side = Work(3, 4, 8_000), Ours(4)
    held: dict[int, set[tuple[int | None, int]]] = {w: set() for w in range(4)}
    content: dict[int | None, int | None] = {None: None}
    for event in work.stored():
        side.apply(side.stored(event))
        parent = event.parent
        for name, local in event.blocks:
            held[event.worker].add((content[parent], local))
            content[name] = local
            parent = name
    for prompts in work.queries(20).values():
        for prompt in prompts:
            pairs = list(zip([None, *prompt], prompt, strict=False))
            lengths = {
                worker: next(
                    (i for i, pair in enumerate(pairs) if pair not in blocks),
                    len(pairs),
                )
                for worker, blocks in held.items()
            }
            answer = side.held(side.match(side.chain(side.prompt(prompt))))
            assert answer == {w: length for w, length in lengths.items() if length}


def test_chains_are_whole_runs() -> None:
    """Of the length asked for, each from the root."""
    events: list[Stored] = list(chains(random.Random(1), 128, 64))
    assert [event.parent is None for event in events] == [True, False, False, False] * 2
    assert all(len(event.blocks) == RUN for event in events)


def test_cells_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number that the tables show is there, and above zero."""
    monkeypatch.setattr(_index_cell, "HASH_ROUNDS", 3)
    monkeypatch.setattr(_index_cell, "QUERIES", 30)
    assert all(hash_cell(Ours(1), 1)[size] > 0 for size in ("16", "64"))
    result = tree_cell(Ours(2), 1, 2, 3_000)
    assert result["store"] > 0
    assert result["remove"] > 0
    assert all(result[kind]["p50"] > 0 for kind in KINDS)
    assert len(churn_cell(Ours(1), 1, 640)["sizes"]) == 10


def test_tables_without_a_peer(capsys: pytest.CaptureFixture[str]) -> None:
    """In processes of their own; the seconds and bytes are as the machine has them."""
    sizes = ["--workers", "2", "--entries", "3000", "--churn-blocks", "640"]
    index.run(["--only", "tree", "--only", "churn", *sizes])
    out = capsys.readouterr().out
    assert "| match, us | deep: ours | shared by all: ours |" in out
    assert "| 2 workers, 3,000 entries |" in out
    assert "MB resident after each round of 640 blocks" in out


def test_an_interpreter_without_the_peer() -> None:
    """What to install is said."""
    with pytest.raises(SystemExit, match="pip install --no-deps ai-dynamo-runtime"):
        index.run(["--dynamo", sys.executable])
    with pytest.raises(SystemExit, match="No such file"):
        index.run(["--dynamo", "/nowhere/python"])
