"""When a virtual worker answers, and what it stores meanwhile."""

import pytest

from simworker.simulate.timeline import Timeline
from simworker.simulate.worker import Speed, VirtualRequest, VirtualWorker

SIZE = 10
SPEED = Speed(prefill_rate=1_000.0, prefill_cost_s=0.5, decode_rate=10.0, max_running=2)


class World:
    """One worker, and what it did when."""

    def __init__(self, *, blocks: int = 100, speed: Speed = SPEED) -> None:
        self.timeline = Timeline()
        self.happened: list[tuple[float, str]] = []
        self.worker = VirtualWorker(
            self.timeline,
            speed,
            block_size=SIZE,
            cache_blocks=blocks,
            on_stored=lambda blocks: self.note(f"stored {blocks}"),
            on_removed=lambda blocks: self.note(f"removed {blocks}"),
        )

    def note(self, what: str) -> None:
        """It happened now."""
        self.happened.append((round(self.timeline.now, 6), what))

    def ask(
        self, name: str, blocks: list[int], *, rest: int = 5, output: int = 11
    ) -> VirtualRequest:
        """Submit a prompt of these blocks and some tokens more."""
        request = VirtualRequest(
            prompt_tokens=len(blocks) * SIZE + rest,
            output_tokens=output,
            blocks=blocks,
            all_blocks=[*blocks, *([] if rest + output <= SIZE else [-blocks[0]])],
            matchable=len(blocks),
            on_first_token=lambda: self.note(f"{name} begins"),
            on_end=lambda: self.note(f"{name} ends"),
            on_failed=lambda: self.note(f"{name} fails"),
        )
        self.worker.submit(request)
        return request

    def of(self, word: str) -> list[tuple[float, str]]:
        """What happened with this word in it."""
        return [(at, what) for at, what in self.happened if word in what]


def test_a_prefill_takes_its_cost_and_its_tokens() -> None:
    """0.5 s and 25 tokens at 1,000 a second; then ten more tokens at ten a second."""
    world = World()
    world.ask("a", [1, 2])
    world.timeline.run()
    assert world.happened == [
        (0.525, "stored [1, 2]"),
        (0.525, "a begins"),
        (1.525, "stored [-1]"),
        (1.525, "a ends"),
    ]


def test_prefills_come_one_after_the_other() -> None:
    """While others decode; the second finds what the first has stored."""
    world = World()
    world.ask("a", [1, 2])
    later = world.ask("b", [1, 2, 3])
    world.timeline.run()
    assert world.of("begins") == [(0.525, "a begins"), (1.04, "b begins")]
    assert later.cached_tokens == 20
    assert world.worker.prefilled_tokens == 25 + 15


def test_no_more_than_so_many_run_at_once() -> None:
    """The third waits until the first has ended."""
    world = World()
    for name, block in (("a", 1), ("b", 2), ("c", 3)):
        world.ask(name, [block])
    world.timeline.run()
    ((ended, _),) = world.of("a ends")
    ((began, _),) = world.of("c begins")
    assert began == pytest.approx(ended + 0.515)


def test_without_room_a_request_waits() -> None:
    """Until blocks of one that has ended can leave."""
    world = World(blocks=6)
    world.ask("a", [1, 2])
    world.ask("b", [3, 4])
    world.timeline.run()
    ((ended, _),) = world.of("a ends")
    assert world.of("removed") == [(ended, "removed [-1]")]
    ((began, _),) = world.of("b begins")
    assert began == pytest.approx(ended + 0.525)


def test_what_can_never_fit_fails_at_once() -> None:
    """Rather than waiting for ever."""
    world = World(blocks=3)
    world.ask("a", [1, 2, 3])
    assert world.happened == [(0.0, "a fails")]


def test_a_restart_ends_all_and_empties_the_cache() -> None:
    """What was running or waiting has failed; nothing of it comes later."""
    world = World()
    world.ask("a", [1])
    world.ask("b", [2])
    world.timeline.at(0.6, world.worker.restart)

    def later() -> None:
        world.ask("c", [1])

    world.timeline.at(2.0, later)
    world.timeline.run()
    assert world.of("fails") == [(0.6, "a fails"), (0.6, "b fails")]
    assert world.of("ends") == [(3.515, "c ends")]
    assert world.of("c begins") == [(2.515, "c begins")]
