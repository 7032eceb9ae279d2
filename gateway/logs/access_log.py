"""The access log: one line for each request, with what was decided. No prompt text.

Its logger is `gateway.access`, which is not silenced by `--log-level`.
"""

import logging

import msgspec

from gateway.tracing.record import AttemptRecord, RequestRecord

log = logging.getLogger("gateway.access")

Fields = dict[str, str | int | float | None]


class AccessLog:
    """Writes the lines."""

    def __init__(self) -> None:
        log.setLevel(logging.INFO)

    def write(self, record: RequestRecord, status: int | None) -> None:
        """The line of a request that is over; without a status its client left."""
        fields = fields_of(record, status)
        shown = " ".join(f"{key}={_text(value)}" for key, value in fields.items())
        log.info("%s", shown, extra={"fields": fields})


def fields_of(record: RequestRecord, status: int | None) -> Fields:
    """What is told of a request, by name; None where there is nothing to tell."""
    now = record.clock()
    fields: Fields = {
        "request_id": record.request_id,
        "method": record.method,
        "endpoint": record.endpoint,
        "status": status,
        "duration_s": round(now - record.begun, 6),
        "ttft_s": None,
        "key": record.key,
        "model": record.model,
        "prompt_tokens": record.prompt_tokens,
        "not_rendered": record.not_rendered,
        "attempts": len(record.attempts),
    }
    attempt = record.answering
    if attempt is not None:
        fields |= _of_attempt(attempt)
        if record.stream and attempt.first_byte_at is not None:
            fields["ttft_s"] = round(attempt.first_byte_at - record.begun, 6)
    return fields


def _of_attempt(attempt: AttemptRecord) -> Fields:
    """Where a request went and why, and what the worker reported."""
    fields: Fields = {
        "worker": attempt.worker,
        "rank": attempt.rank,
        "prompt_tokens": attempt.prompt_tokens,
        "hit_tokens": attempt.hit_tokens,
        "uncached_tokens": attempt.uncached_tokens,
        "why": attempt.why,
        "ids": attempt.ids,
        "end": attempt.end,
    }
    usage = attempt.usage
    if usage is not None:
        fields |= {
            "delivered_hit_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
        }
    return fields


def _text(value: str | int | float | None) -> str:
    """A value in a line of text: quoted where it would be taken for two."""
    if value is None:
        return "-"
    text = str(value)
    plain = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if text and plain else msgspec.json.encode(text).decode()
