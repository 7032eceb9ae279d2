"""Metrics in Prometheus' text format, written by hand: the values are the engines'."""

from collections.abc import Iterator, Mapping, Sequence

Labels = Mapping[str, str]


def family(
    name: str, kind: str, samples: Sequence[tuple[Labels, float]]
) -> Iterator[str]:
    """The lines of one metric: labels and values."""
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield _sample(name, labels, value)


def histogram(
    name: str, samples: Sequence[tuple[Labels, float, float]]
) -> Iterator[str]:
    """The lines of a histogram of one bucket: labels, count and sum."""
    yield f"# TYPE {name} histogram"
    for labels, count, total in samples:
        yield _sample(f"{name}_bucket", {**labels, "le": "+Inf"}, count)
        yield _sample(f"{name}_count", labels, count)
        yield _sample(f"{name}_sum", labels, total)


def _sample(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(item)}"' for key, item in labels.items())
    return f"{name}{{{shown}}} {float(value)!r}" if shown else f"{name} {value!r}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
