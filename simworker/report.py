"""The table of the demo: what each policy did with the same traffic."""

from collections.abc import Mapping, Sequence

import msgspec

COLUMNS = (
    "requests",
    "prompt tokens",
    "predicted hits",
    "delivered hits",
    "hit rate",
    "TTFT mean",
    "TTFT p90",
)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One answered request, as its client saw it. Seconds and tokens."""

    worker: str
    prompt_tokens: int
    cached_tokens: int
    ttft_s: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker, or all together, did. Field names are those of `--json`."""

    requests: int
    prompt_tokens: int
    predicted_hit_tokens: int
    delivered_hit_tokens: int
    prediction_error_tokens: int
    ttft_mean_s: float
    ttft_p90_s: float


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's row group: its total, and each worker's share by URL."""

    totals: Figures
    workers: Mapping[str, Figures]

    def to_json(self) -> dict[str, object]:
        """As `--json` writes it."""
        workers = [
            {"worker": url, **msgspec.to_builtins(figures)}
            for url, figures in self.workers.items()
        ]
        return {"totals": msgspec.to_builtins(self.totals), "workers": workers}


def summarize(
    samples: Sequence[Sample],
    predicted: Mapping[str, int],
    errors: Mapping[str, int],
    urls: Sequence[str],
) -> PolicyReport:
    """Group samples by worker; `predicted` and `errors` are the gateway's, by URL."""
    by_worker = {url: [s for s in samples if s.worker == url] for url in urls}
    workers = {
        url: _figures(own, predicted.get(url, 0), errors.get(url, 0))
        for url, own in by_worker.items()
    }
    totals = _figures(samples, sum(predicted.values()), sum(errors.values()))
    return PolicyReport(totals=totals, workers=workers)


def _figures(samples: Sequence[Sample], predicted: int, error: int) -> Figures:
    times = sorted(sample.ttft_s for sample in samples)
    return Figures(
        requests=len(samples),
        prompt_tokens=sum(sample.prompt_tokens for sample in samples),
        predicted_hit_tokens=predicted,
        delivered_hit_tokens=sum(sample.cached_tokens for sample in samples),
        prediction_error_tokens=error,
        ttft_mean_s=round(sum(times) / len(times), 4) if times else 0.0,
        ttft_p90_s=round(times[int(0.9 * (len(times) - 1))], 4) if times else 0.0,
    )


def table(reports: Mapping[str, PolicyReport]) -> str:
    """The table as text: per policy, a row per worker and one in total."""
    rows: list[tuple[str, ...]] = [("policy", "worker", *COLUMNS)]
    for policy, report in reports.items():
        for url, figures in report.workers.items():
            rows.append((policy, url.removeprefix("http://"), *_cells(figures)))
        rows.append((policy, "total", *_cells(report.totals)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [_line(row, widths) for row in rows]
    rule = "-" * len(lines[0])
    shown = [lines[0]]
    for row, line in zip(rows[1:], lines[1:], strict=True):
        first_of_policy = row[1] != "total" and (not shown or row[0] not in shown[-1])
        if first_of_policy:
            shown.append(rule)
        shown.append(line)
    return "\n".join(shown)


def _cells(figures: Figures) -> tuple[str, ...]:
    prompt = figures.prompt_tokens
    rate = figures.delivered_hit_tokens / prompt if prompt else 0.0
    return (
        f"{figures.requests}",
        f"{prompt:,}",
        f"{figures.predicted_hit_tokens:,}",
        f"{figures.delivered_hit_tokens:,}",
        f"{rate:.1%}",
        f"{1000 * figures.ttft_mean_s:.0f} ms",
        f"{1000 * figures.ttft_p90_s:.0f} ms",
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell.ljust(w) for cell, w in zip(row[:2], widths[:2], strict=True)]
    cells += [cell.rjust(w) for cell, w in zip(row[2:], widths[2:], strict=True)]
    return "  ".join(cells)
