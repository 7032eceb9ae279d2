"""The recording rules: what panels and alerts are made of."""

from deploy.record import PREFIX, Recording, quantile, share, total

FLEET, WORKER, GATEWAY = "job", "job, worker", "job, instance"
INFERENCE = 'endpoint=~"chat_completions|completions|responses"'
FAILED = 'status=~"5.."'
RENDERABLE = 'reason!="endpoint"'
WITH_IDS = 'outcome="forwarded"'


def _hits(kind: str, by: str, meaning: str) -> Recording:
    whole = "reported_prompt_tokens_total"
    return Recording(
        name=f"{by.replace(', ', '_')}:{PREFIX}{kind}_hits:ratio_rate5m",
        expr=share(f"{kind}_hit_tokens_total", whole, by),
        meaning=meaning,
    )


def _first_token(q: str) -> Recording:
    return Recording(
        name=f"job:{PREFIX}first_token_seconds:p{q}_rate5m",
        expr=quantile(float(f"0.{q}"), "first_token_seconds", FLEET),
        meaning=f"Seconds to the first event of a stream, {q} % are below",
    )


DELIVERED = _hits("delivered", FLEET, "Hit rate: share of prompt tokens found cached")
PREDICTED = _hits("predicted", FLEET, "Hit rate as the decisions predicted it")
BEST = _hits("best", FLEET, "Hit rate had each request gone where most was held")
DELIVERED_BY_WORKER = _hits("delivered", WORKER, "Hit rate of each worker")
PREDICTED_BY_WORKER = _hits("predicted", WORKER, "Predicted hit rate of each worker")
BEST_BY_WORKER = _hits("best", WORKER, "Best possible hit rate of what each worker got")
FATES = Recording(
    name=f"job_fate:{PREFIX}prompt_token_fates:rate5m",
    expr=total("prompt_token_fates_total", "job, fate"),
    meaning="Prompt tokens per second by what became of them",
)
DISAGREEMENT = Recording(
    name=f"job_worker:{PREFIX}prediction_error:ratio_rate5m",
    expr=(
        f"{total('prediction_error_tokens_total', WORKER)} / "
        f"({total('predicted_hit_tokens_total', WORKER)} + "
        f"{total('delivered_hit_tokens_total', WORKER)})"
    ),
    meaning="How far predicted and delivered hits are apart: 0 never, 1 wholly; a "
    "third is one of them twice the other",
)
FIRST_TOKEN_P50 = _first_token("50")
FIRST_TOKEN_P95 = _first_token("95")
FIRST_TOKEN_P99 = _first_token("99")
FIRST_TOKEN_BY_WORKER = Recording(
    name=f"job_worker:{PREFIX}first_token_seconds:p95_rate5m",
    expr=quantile(0.95, "first_token_seconds", WORKER),
    meaning="The same of each worker, 95 % are below",
)
WORKERS_SAVED = Recording(
    name=f"job:{PREFIX}prefill_saved:workers",
    expr=(
        f"sum by (job) ({total('delivered_hit_tokens_total', WORKER)} / "
        f"max by ({WORKER}) ({PREFIX}prefill_tokens_per_second))"
    ),
    meaning="Workers that would do nothing but prefill what was found cached",
)
PREFILL_WAIT = Recording(
    name=f"job_worker:{PREFIX}prefill_wait:seconds",
    expr=(
        f"sum by ({WORKER}) ({PREFIX}inflight_uncached_tokens) / "
        f"max by ({WORKER}) ({PREFIX}prefill_tokens_per_second)"
    ),
    meaning="Seconds of prefill that a new request would wait for at each worker",
)
READY = Recording(
    name=f"job:{PREFIX}ready_workers:min",
    expr=f'min by (job) (sum without (worker) ({PREFIX}worker_state{{state="ready"}}))',
    meaning="Workers that are ready, by the gateway that sees fewest",
)
ERRORS = Recording(
    name=f"job:{PREFIX}failed_requests:ratio_rate5m",
    expr=(
        f"({total('requests_total', FLEET, INFERENCE, FAILED)} or "
        f"0 * {total('requests_total', FLEET, INFERENCE)}) / "
        f"{total('requests_total', FLEET, INFERENCE)}"
    ),
    meaning="Share of inference requests answered with a status of 500 or above",
)
RENDER_MEAN = Recording(
    name=f"job:{PREFIX}render_seconds:mean_rate5m",
    expr=share("render_seconds_sum", "render_seconds_count", FLEET),
    meaning="Seconds it takes to render a request, waiting included, in the mean",
)
RENDER_P95 = Recording(
    name=f"job:{PREFIX}render_seconds:p95_rate5m",
    expr=quantile(0.95, "render_seconds", FLEET),
    meaning="The same, 95 % are below",
)
NOT_RENDERED = Recording(
    name=f"job_reason:{PREFIX}not_rendered:ratio_rate5m",
    expr=(
        f"{total('not_rendered_total', 'job, reason', RENDERABLE)} "
        f"/ on (job) group_left () {total('requests_total', FLEET, INFERENCE)}"
    ),
    meaning="Share of inference requests routed without token ids, by reason",
)
FORWARDED = Recording(
    name=f"job:{PREFIX}forwarded:ratio_rate5m",
    expr=(
        f"({total('forwarded_total', FLEET, WITH_IDS)} or "
        f"0 * {total('forwarded_total', FLEET)}) / {total('forwarded_total', FLEET)}"
    ),
    meaning="Share of requests that went to their worker with token ids",
)
LAG = Recording(
    name=f"job_instance:{PREFIX}event_loop_lag_seconds:p99_rate5m",
    expr=quantile(0.99, "event_loop_lag_seconds", GATEWAY),
    meaning="How late the event loop of each gateway is, 99 % are below",
)
INDEX_FILL = Recording(
    name=f"job_instance:{PREFIX}index_memory:ratio",
    expr=f"max by ({GATEWAY}) ({PREFIX}index_bytes) / "
    f"max by ({GATEWAY}) ({PREFIX}index_limit_bytes)",
    meaning="How full the index of each gateway is",
)

RECORDINGS = tuple(v for v in list(vars().values()) if isinstance(v, Recording))
"""All of them, in the order above."""
