"""The virtual clock."""

from simworker.simulate.timeline import Timeline


def test_things_happen_in_the_order_of_time() -> None:
    """At one time in the order they were planned; the past is now."""
    timeline, seen = Timeline(), list[tuple[float, str]]()

    def later(name: str) -> None:
        seen.append((timeline.clock(), name))

    timeline.at(2.0, lambda: later("c"))
    timeline.at(1.0, lambda: later("a"))
    timeline.at(1.0, lambda: later("b"))
    timeline.at(2.0, lambda: timeline.at(0.0, lambda: later("d")))
    timeline.at(2.0, lambda: timeline.after(0.5, lambda: later("e")))
    timeline.run()
    assert seen == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d"), (2.5, "e")]
