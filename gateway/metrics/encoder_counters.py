"""Metrics of the encoders' sampled check, read at each scrape."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from gateway.metrics.registry import PREFIX
from render import Renderer


def encoder_counters(
    loaded: Callable[[], Iterable[Renderer]],
) -> Callable[[], Iterator[Metric]]:
    """What reads the counters of the models that are loaded then."""

    def read() -> Iterator[Metric]:
        checked = CounterMetricFamily(
            PREFIX + "encoder_checks",
            "Texts encoded again by the reference encoder",
            labels=("model",),
        )
        mismatches = CounterMetricFamily(
            PREFIX + "encoder_mismatches",
            "Texts whose ids were not the reference encoder's",
            labels=("model",),
        )
        for name, counts in {r.model.name: r.encoder_checks for r in loaded()}.items():
            checked.add_metric([name], counts[0])
            mismatches.add_metric([name], counts[1])
        yield from (checked, mismatches)

    return read
