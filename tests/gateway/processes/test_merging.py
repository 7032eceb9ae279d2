"""Pages of several processes as one."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.processes import merging


def slot(age: int, prompt: int, p50: float | None) -> dict[str, object]:
    """A slot of the live page."""
    return {
        "age": age,
        "prompt_tokens": prompt,
        "delivered_hit_tokens": prompt // 2,
        "predicted_hit_tokens": prompt // 2,
        "best_hit_tokens": prompt,
        "first_token_p50_s": p50,
        "first_token_p95_s": None,
    }


def test_what_happened_of_late() -> None:
    """Slots of the same age are one; of times the longest; decisions in one row."""
    first = {
        "slot_s": 5.0,
        "of": 120,
        "slots": [slot(3, 10, 0.5), slot(0, 20, None)],
        "decisions": [{"ago_s": 1.0, "worker": "a"}, {"ago_s": 9.0, "worker": "b"}],
    }
    second = {
        "slot_s": 5.0,
        "of": 120,
        "slots": [slot(3, 30, 0.2), slot(1, 40, 0.1)],
        "decisions": [{"ago_s": 4.0, "worker": "c"}],
    }
    page = merging.recent([(0, first), (1, second)])
    names = ("age", "prompt_tokens", "first_token_p50_s")
    slots = [tuple(slot[name] for name in names) for slot in page["slots"]]
    assert slots == [(3, 40, 0.5), (1, 40, 0.1), (0, 20, None)]
    assert [(d["process"], d["worker"]) for d in page["decisions"]] == [
        (0, "a"),
        (1, "c"),
        (0, "b"),
    ]
    assert (page["slot_s"], page["of"]) == (5.0, 120)


def test_totals_and_owners() -> None:
    """Only what belongs to no process in particular is added up."""
    page = {"blocks": 3, "bytes": 300, "limit_bytes": 1000, "refused": 1}
    merged = merging.index(
        [(0, {**page, "owners": [{"worker": "w"}]}), (2, {**page, "owners": []})]
    )
    assert merged == {
        "blocks": 6,
        "bytes": 600,
        "limit_bytes": 2000,
        "refused": 2,
        "owners": [{"process": 0, "worker": "w"}],
    }


def exposition(count: int) -> bytes:
    """A page with a metric of each kind; label values are as odd as they get."""
    registry = CollectorRegistry()
    plain = Counter("kv_gateway_plain", "No labels", registry=registry)
    plain.inc(count)
    odd = Gauge("kv_gateway_odd", "Labels", ("worker",), registry=registry)
    odd.labels('http://w/{x} "y"\\z').set(count)
    times = Histogram("kv_gateway_times", "Times", registry=registry, buckets=(1.0,))
    times.observe(0.5)
    return generate_latest(registry)


def test_metrics() -> None:
    """Every sample as it was, with its process; every family once, in one piece."""
    page = merging.metrics([("0", exposition(3)), ("parent", exposition(4))])
    families = list(text_string_to_metric_families(page.decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert page.count(b"# TYPE kv_gateway_plain_total counter") == 1
    samples = {
        (sample.name, sample.labels["process"], sample.labels.get("worker")): sample
        for family in families
        for sample in family.samples
    }
    assert samples["kv_gateway_plain_total", "0", None].value == 3
    assert samples["kv_gateway_plain_total", "parent", None].value == 4
    assert samples["kv_gateway_odd", "0", 'http://w/{x} "y"\\z'].value == 3
    assert samples["kv_gateway_times_sum", "parent", None].value == 0.5
    one = list(text_string_to_metric_families(exposition(3).decode()))
    assert len(samples) <= 2 * sum(len(family.samples) for family in one)
    assert [family.documentation for family in families[: len(one)]] == [
        family.documentation for family in one
    ]
