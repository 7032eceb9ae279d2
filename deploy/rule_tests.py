"""Series by which each alert fires, and others by which it stays quiet.

Values are promtool's: `0+60x20` begins at 0 and grows by 60 a minute, 20 times.
"""

from collections.abc import Mapping

import msgspec

from deploy import recordings as recorded
from deploy.record import PREFIX, Recording

JOB = 'job="gateways"'
FROM = f'{JOB}, instance="g1:8080"'
AT_A = f'{FROM}, worker="http://a:8000"'
AT_B = f'{FROM}, worker="http://b:8000"'
BY_DNS = f'{FROM}, source="dns/w:8000"'
OF_PROCESS = f'{FROM}, process="1"'
OF_A = {"job": "gateways", "worker": "http://a:8000"}
CHATS = f'{FROM}, endpoint="chat_completions"'

Series = tuple[tuple[str, str], ...]


class AlertTest(msgspec.Struct, frozen=True, kw_only=True):
    """At `at` the alert fires with these labels by one, and does not by the other."""

    fires: Series
    quiet: Series
    labels: Mapping[str, str]
    at: str = "40m"


def _series(metric: str, labels: str, values: str) -> tuple[str, str]:
    return f"{PREFIX}{metric}{{{labels}}}", values


def _state(metric: str, labels: str, state: str) -> AlertTest:
    """A state that holds, and one that comes and goes."""
    labels_of = {"rank": "0"} if metric == "feed_state" else {}
    name = f'{labels}, state="{state}"'
    return AlertTest(
        fires=(_series(metric, name, "1x60"),),
        quiet=(_series(metric, name, "0 1 1 0 0 0 1 1 0x60"),),
        labels=OF_A | labels_of,
    )


def _load(metric: str, a: str, b: str) -> Series:
    rate = "prefill_tokens_per_second"
    return (
        _series(metric, AT_A, a),
        _series(metric, AT_B, b),
        _series(rate, AT_A, "10000x60"),
        _series(rate, AT_B, "10000x60"),
    )


def _hits(predicted: int, delivered: int) -> Series:
    error = abs(predicted - delivered)
    return (
        _series("predicted_hit_tokens_total", AT_A, f"0+{predicted}x60"),
        _series("delivered_hit_tokens_total", AT_A, f"0+{delivered}x60"),
        _series("prediction_error_tokens_total", AT_A, f"0+{error}x60"),
    )


def _lag(below_50_ms: int) -> Series:
    name = "event_loop_lag_seconds_bucket"
    return (
        _series(name, f'{FROM}, le="0.05"', f"0+{below_50_ms}x60"),
        _series(name, f'{FROM}, le="0.1"', "0+600x60"),
        _series(name, f'{FROM}, le="+Inf"', "0+600x60"),
    )


def _index(bytes_used: int, refused: str) -> Series:
    return (
        _series("index_bytes", FROM, f"{bytes_used}x60"),
        _series("index_limit_bytes", FROM, "1000x60"),
        _series("index_refused_blocks_total", FROM, refused),
    )


def _forwarding(before: str, after: str) -> Series:
    blocked = f'{AT_A}, reason="template_differs"'
    return (
        _series("forwarded_total", f'{FROM}, outcome="forwarded"', before),
        _series("forwarded_total", f'{FROM}, outcome="withheld"', after),
        _series("forwarding_blocked", blocked, "_x20 1x40"),
    )


def _counted(metric: str, label: str, fires: str, quiet: str) -> AlertTest:
    key, _, value = label.partition("=")
    return AlertTest(
        fires=(_series(metric, f"{FROM}, {label}", fires),),
        quiet=(_series(metric, f"{FROM}, {label}", quiet),),
        labels={"job": "gateways", key: value.strip('"')},
    )


def _answers(failed: int, fine: int = 600) -> Series:
    return (
        _series("requests_total", f'{CHATS}, status="200"', f"0+{fine}x60"),
        _series("requests_total", f'{CHATS}, status="502"', f"0+{failed}x60"),
    )


def _late(requests: int) -> Series:
    late = f'{FROM}, reason="deadline"'
    return (
        *_answers(0),
        _series("not_rendered_total", late, f"0+{requests}x60"),
    )


class RecordingTest(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording is, by these series, after twenty minutes: labels to value."""

    series: Series
    values: Mapping[str, float]


def _of_two(metric: str, first: int, second: int) -> Series:
    """The same worker as two gateways count it."""
    other = AT_A.replace("g1:8080", "g2:8080")
    return (
        _series(metric, AT_A, f"0+{first}x60"),
        _series(metric, other, f"0+{second}x60"),
    )


RECORDING_TESTS: Mapping[Recording, RecordingTest] = {
    recorded.DELIVERED: RecordingTest(
        series=_of_two("delivered_hit_tokens_total", 100, 200)
        + _of_two("reported_prompt_tokens_total", 200, 400),
        values={JOB: 0.5},
    ),
    recorded.DISAGREEMENT: RecordingTest(
        series=_hits(300, 100), values={f'{JOB}, worker="http://a:8000"': 0.5}
    ),
    recorded.WORKERS_SAVED: RecordingTest(
        series=(
            _series("delivered_hit_tokens_total", AT_A, "0+600000x60"),
            _series("prefill_tokens_per_second", AT_A, "5000x60"),
            _series("delivered_hit_tokens_total", AT_B, "0+600000x60"),
            _series("prefill_tokens_per_second", AT_B, "10000x60"),
        ),
        values={JOB: 3.0},
    ),
    recorded.READY: RecordingTest(
        series=(
            _series("worker_state", f'{AT_A}, state="ready"', "1x60"),
            _series("worker_state", f'{AT_B}, state="ready"', "1x60"),
            _series(
                "worker_state",
                f'{JOB}, instance="g2:8080", worker="http://a:8000", state="ready"',
                "1x60",
            ),
        ),
        values={JOB: 1.0},
    ),
    recorded.NOT_RENDERED: RecordingTest(
        series=_late(60), values={f'{JOB}, reason="deadline"': 0.1}
    ),
    recorded.ERRORS: RecordingTest(series=_answers(200), values={JOB: 0.25}),
    recorded.FORWARDED: RecordingTest(
        series=_forwarding("0+30x60", "0+90x60"), values={JOB: 0.25}
    ),
    recorded.LAG: RecordingTest(
        series=_lag(300), values={f'{JOB}, instance="g1:8080"': 0.099}
    ),
}
"""What is easily got wrong: sums over gateways, ratios, quantiles."""

TELLS_NOTHING = _series(
    "uncompared_requests_total", f'{AT_A}, reason="no_cached_tokens"', "0+60x120"
)

TESTS: Mapping[str, AlertTest] = {
    "KvGatewayGone": AlertTest(
        fires=(_series("index_blocks", FROM, "5x20"),),
        quiet=(_series("index_blocks", FROM, "5x60"),),
        labels={},
    ),
    "KvGatewayNoReadyWorker": AlertTest(
        fires=(
            _series("worker_state", f'{AT_A}, state="ready"', "1x20 0x40"),
            _series("worker_state", f'{AT_B}, state="ready"', "0x60"),
        ),
        quiet=(
            _series("worker_state", f'{AT_A}, state="ready"', "0x60"),
            _series("worker_state", f'{AT_B}, state="ready"', "1x60"),
        ),
        labels={"job": "gateways"},
    ),
    "KvGatewayRequestsFail": AlertTest(
        fires=_answers(60), quiet=_answers(6), labels={"job": "gateways"}
    ),
    "KvGatewayWorkerDown": _state("worker_state", AT_A, "down"),
    "KvGatewayDiscoveryFails": AlertTest(
        fires=(
            _series("discovery_success_timestamp_seconds", BY_DNS, "0+60x20 1200x40"),
        ),
        quiet=(_series("discovery_success_timestamp_seconds", BY_DNS, "0+60x60"),),
        labels={"job": "gateways", "instance": "g1:8080", "source": "dns/w:8000"},
    ),
    "KvGatewaySaturated": AlertTest(
        fires=_load("inflight_uncached_tokens", "150000x60", "200000x60"),
        quiet=_load("inflight_uncached_tokens", "150000x60", "20000x60"),
        labels={"job": "gateways"},
    ),
    "KvGatewayRefusing": _counted(
        "refused_total", 'reason="queue_full"', "_x20 1+60x40", "5x60"
    ),
    "KvGatewayFeedSilent": _state("feed_state", f'{AT_A}, rank="0"', "silent"),
    "KvGatewayFeedDegraded": _state("feed_state", f'{AT_A}, rank="0"', "degraded"),
    "KvGatewayPredictionsDisagree": AlertTest(
        fires=_hits(9000, 3000), quiet=_hits(9000, 7000), labels=OF_A
    ),
    "KvGatewayHitsUnreported": AlertTest(
        fires=(TELLS_NOTHING,),
        quiet=(
            TELLS_NOTHING,
            _series("reported_prompt_tokens_total", AT_A, "0+100x120"),
        ),
        labels=OF_A,
        at="90m",
    ),
    "KvGatewayIndexFull": AlertTest(
        fires=_index(500, "0+10x60"),
        quiet=_index(900, "10x60"),
        labels={"job": "gateways", "instance": "g1:8080"},
    ),
    "KvGatewayForwardingBlocked": AlertTest(
        fires=_forwarding("0+60x20 1200x40", "0x20 0+60x40"),
        quiet=_forwarding("0x60", "0+60x60"),
        labels=OF_A | {"reason": "template_differs"},
    ),
    "KvGatewayRenderingMissed": AlertTest(
        fires=_late(60), quiet=_late(6), labels={"job": "gateways"}
    ),
    "KvGatewayEncoderMismatch": _counted(
        "encoder_mismatches_total", 'model="m"', "0x35 1x10", "0x60"
    ),
    "KvGatewayEventLoopLag": AlertTest(
        fires=_lag(500),
        quiet=_lag(600),
        labels={"job": "gateways", "instance": "g1:8080"},
    ),
    "KvGatewayProcessEnded": AlertTest(
        fires=(_series("process_restarts_total", OF_PROCESS, "0x30 1x30"),),
        quiet=(_series("process_restarts_total", OF_PROCESS, "3x60"),),
        labels={"job": "gateways", "instance": "g1:8080", "process": "1"},
    ),
    "KvGatewayInternalErrors": _counted(
        "internal_errors_total", 'where="render"', "_x35 1x10", "1x60"
    ),
}
"""By the alert's name."""
