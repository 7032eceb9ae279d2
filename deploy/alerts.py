"""The alerts: when somebody should look, and what to do then."""

from deploy import recordings as recorded
from deploy.record import PREFIX, Alert

WORKER, OWNER = "job, worker", "job, worker, rank"
SOURCE = "job, instance, source"


def _state(metric: str, by: str, states: str) -> str:
    return f'max by ({by}) ({PREFIX}{metric}_state{{state=~"{states}"}}) == 1'


def _grew(metric: str, by: str, window: str) -> str:
    """A counter grew, also where its first count made the series."""
    total, name = f"sum by ({by})", f"{PREFIX}{metric}_total"
    return (
        f"{total} (increase({name}[{window}])) > 0 or "
        f"{total} ({name} unless {name} offset {window}) > 0"
    )


def _of_all(reasons: str) -> str:
    """The share of requests not rendered for these reasons."""
    selector = f'reason=~"{reasons}"'
    return f"sum by (job) ({recorded.NOT_RENDERED.name}{{{selector}}})"


SERVING = (
    Alert(
        name="KvGatewayGone",
        expr=f"absent({PREFIX}index_blocks)",
        lasts="5m",
        severity="critical",
        summary="No gateway is scraped",
        meaning="None is up, or Prometheus does not find them.",
        remedy=(
            "`curl -s http://127.0.0.1:8080/ready` where one runs: does it answer?",
            "If it does, look at the targets of Prometheus: address, port, job.",
        ),
    ),
    Alert(
        name="KvGatewayNoReadyWorker",
        expr=f"{recorded.READY.name} < 1",
        lasts="1m",
        severity="critical",
        summary="No worker of {{ $labels.job }} is ready",
        meaning="Requests wait for a worker in vain, or try one that failed before.",
        remedy=(
            "`kv-gateway doctor --workers http://w1:8000` says what is wrong with one.",
            "If they run, look for what lies between: names, ports, network policy.",
        ),
    ),
    Alert(
        name="KvGatewayRequestsFail",
        expr=f"{recorded.ERRORS.name} > 0.05",
        lasts="5m",
        severity="critical",
        summary="More than 5 % of the requests to {{ $labels.job }} fail",
        meaning="Inference requests end with a status of 500 or above.",
        remedy=(
            "On *Proxy health*, failures by worker and kind: one worker's, or all?",
            "`connect` and `reset` point to a worker that restarts; `timeout` to one "
            "that hangs, or to `--first-byte-timeout` below its longest queue.",
            "503 while workers are ready: they are busy, see KvGatewaySaturated.",
        ),
    ),
    Alert(
        name="KvGatewayWorkerDown",
        expr=_state("worker", WORKER, "down|joining"),
        lasts="5m",
        severity="warning",
        summary="{{ $labels.worker }} is down, or never came up",
        meaning="It failed several times and is asked now and then only, or has not "
        "answered since it was added.",
        remedy=(
            "The reason is on its card at `/gateway/`, and in the log.",
            "A worker that is gone for good: take it out of `--workers`.",
        ),
    ),
    Alert(
        name="KvGatewayDiscoveryFails",
        expr=(
            f"time() - min by ({SOURCE}) "
            f"({PREFIX}discovery_success_timestamp_seconds) > 300"
        ),
        lasts="5m",
        severity="warning",
        summary="{{ $labels.instance }} does not learn of workers by "
        "{{ $labels.source }}",
        meaning="Workers that come are not used, workers that go are found out by "
        "failures only. The others are used as before.",
        remedy=(
            "The log says why, and *Proxy health* counts it by reason.",
            "`refused`: may its service account list and watch EndpointSlices there?",
            "`unreachable`, `timeout`, `failed`: is it a network policy, or the "
            "resolver? `empty`: is the name right, and does it have addresses?",
        ),
    ),
    Alert(
        name="KvGatewaySaturated",
        expr=f"min by (job) ({recorded.PREFILL_WAIT.name}) > 10",
        lasts="5m",
        severity="warning",
        summary="At every worker of {{ $labels.job }} more than 10 s of prefill wait",
        meaning="Wherever a request goes, its first token is more than 10 s away.",
        remedy=(
            "Is the hit rate as ever? If it fell, see *Fleet cache efficiency* first.",
            "If so there are too few workers: add some.",
        ),
    ),
    Alert(
        name="KvGatewayRefusing",
        expr=_grew("refused", "job, reason", "5m"),
        lasts="5m",
        severity="warning",
        summary="{{ $labels.job }} refuses requests ({{ $labels.reason }})",
        meaning="More came than its limits let in: clients are answered 429 or 503 and "
        "told to come again.",
        remedy=(
            "Is it so at each worker? See KvGatewaySaturated.",
            "If workers have room, the limits of the gateway are too low; the reason "
            "names the one that was met.",
        ),
    ),
)
CACHES = (
    Alert(
        name="KvGatewayFeedSilent",
        expr=_state("feed", OWNER, "silent"),
        lasts="5m",
        severity="warning",
        summary="{{ $labels.worker }} rank {{ $labels.rank }} sends no KV events",
        meaning="Requests ran there and no event came: it is routed to by the "
        "gateway's own history, which does not know of evictions.",
        remedy=(
            "Was it started with KV events? The doctor names its flag.",
            "Can the gateway reach the port? `--kv-events` says where it is.",
        ),
    ),
    Alert(
        name="KvGatewayFeedDegraded",
        expr=_state("feed", OWNER, "degraded"),
        lasts="15m",
        severity="warning",
        summary="Events of {{ $labels.worker }} rank {{ $labels.rank }} were missed",
        meaning="What was stored before counts half until requests confirm it. A short "
        "gap mends itself; one that lasts, or comes again and again, does not.",
        remedy=(
            "The reason is on its card at `/gateway/`.",
            "Give it a replay endpoint, so that missed batches can be asked for.",
            "Batches missed all the time: the worker's send buffer is too small, or "
            "the gateway is too busy, see KvGatewayEventLoopLag.",
        ),
    ),
    Alert(
        name="KvGatewayPredictionsDisagree",
        expr=f"{recorded.DISAGREEMENT.name} > 1 / 3",
        lasts="15m",
        severity="warning",
        summary="{{ $labels.worker }} does not find what is predicted of it",
        meaning="Predicted and delivered hit tokens are a factor of two apart.",
        remedy=(
            "It finds less: is its prefix cache on, and is its block size the one at "
            "`/gateway/workers`? A cache too small evicts before it is asked again.",
            "It finds less of chats with tools or images only: its template differs; "
            "the doctor compares renderings.",
            "It finds more: its events do not arrive, see KvGatewayFeedSilent.",
        ),
    ),
    Alert(
        name="KvGatewayHitsUnreported",
        expr=(
            f"sum by ({WORKER}) (rate({PREFIX}uncompared_requests_total"
            '{reason="no_cached_tokens"}[30m])) > 0 unless '
            f"sum by ({WORKER}) (rate({PREFIX}reported_prompt_tokens_total[30m])) > 0"
        ),
        lasts="30m",
        severity="info",
        summary="{{ $labels.worker }} does not report its cached tokens",
        meaning="Hit rates leave it out, and its predictions go unchecked.",
        remedy=("The doctor names the flag; vLLM: `--enable-prompt-tokens-details`.",),
    ),
    Alert(
        name="KvGatewayIndexFull",
        expr=(
            f"{recorded.INDEX_FILL.name} > 0.95 or sum by (job, instance) "
            f"(increase({PREFIX}index_refused_blocks_total[10m])) > 0"
        ),
        lasts="10m",
        severity="warning",
        summary="The index of {{ $labels.instance }} is at its bound",
        meaning="New blocks are refused, so hits on them are not seen.",
        remedy=("Raise `--index-memory`.",),
    ),
)
RENDERING = (
    Alert(
        name="KvGatewayForwardingBlocked",
        expr=(
            f"max by ({WORKER}, reason) ({PREFIX}forwarding_blocked) == 1 and on (job) "
            f"max_over_time({recorded.FORWARDED.name}[1d]) > 0"
        ),
        lasts="10m",
        severity="warning",
        summary="No token ids go to {{ $labels.worker }}: {{ $labels.reason }}",
        meaning="Ids were forwarded within the last day and this worker now keeps them "
        "back, as after a rollout that changed its template, tokenizer or release. "
        "It costs the workers a second rendering, nothing else.",
        remedy=(
            "The reasons are in [forwarding.md](forwarding.md).",
            "A worker that was rolled out with another template: give the gateway the "
            "same `--chat-template`, or wait until the rollout is through.",
        ),
    ),
    Alert(
        name="KvGatewayRenderingMissed",
        expr=f"{_of_all('deadline|queue_full')} > 0.05",
        lasts="10m",
        severity="warning",
        summary="{{ $labels.job }} renders too late for more than 5 % of the requests",
        meaning="They are routed by load and raw content: hits are lost.",
        remedy=(
            "*Rendering and forwarding*: is it tokenizing, or waiting for a thread?",
            "Give it more CPU and `--render-threads`, or a longer `--render-deadline`.",
        ),
    ),
    Alert(
        name="KvGatewayEncoderMismatch",
        expr=(
            f"sum by (job, model) (increase({PREFIX}encoder_mismatches_total[1h])) > 0"
        ),
        lasts="0m",
        severity="critical",
        summary="The encoder of {{ $labels.model }} gives wrong token ids",
        meaning="A sampled text got other ids than from the reference encoder.",
        remedy=(
            "`--encoder tokenizers` is the reference encoder; restart with it.",
            "Report the text's kind and the model.",
        ),
    ),
)
PROCESS = (
    Alert(
        name="KvGatewayEventLoopLag",
        expr=f"{recorded.LAG.name} > 0.05",
        lasts="5m",
        severity="warning",
        summary="{{ $labels.instance }} is too busy: its event loop is late",
        meaning="Every stream through it is late by as much.",
        remedy=(
            "Is its CPU throttled? Raise the container's limit.",
            "If not, add gateways.",
        ),
    ),
    Alert(
        name="KvGatewayProcessEnded",
        expr=f"sum by (job, instance, process) "
        f"(increase({PREFIX}process_restarts_total[15m])) > 0",
        lasts="0m",
        severity="warning",
        summary="Process {{ $labels.process }} of {{ $labels.instance }} ended",
        meaning="One of its processes ended and another was started in its place. "
        "Clients that were connected to it saw their connections break.",
        remedy=(
            "The log of its parent says by which signal or status.",
            "SIGKILL is the system's when memory is short: each process loads the "
            "model, and has its part of `--index-memory`.",
            "A trace in the log: report it.",
        ),
    ),
    Alert(
        name="KvGatewayInternalErrors",
        expr=_grew("internal_errors", "job, where", "15m"),
        lasts="0m",
        severity="warning",
        summary="{{ $labels.job }} had a fault of its own ({{ $labels.where }})",
        meaning="A bug of the gateway; the request concerned was answered with 500, or "
        "routed without ids.",
        remedy=("The log has the trace. Report it.",),
    ),
)
ALERTS = SERVING + CACHES + RENDERING + PROCESS
