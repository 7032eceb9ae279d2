"""What a real vLLM 0.32 answered to render and token requests, as test parameters."""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent.parent / "data" / "vllm"
WORKER = ("w1_chat_cases", "w1_other_cases")
SERVER = ("render_server_cases",)

Exchange = dict[str, Any]


def exchanges(files: Sequence[str], *paths: str) -> Iterator[Any]:
    """Each exchange of these files with one of these paths."""
    for file in files:
        cases = json.loads(gzip.decompress((DATA / f"{file}.json.gz").read_bytes()))
        for name, case in cases["cases"].items():
            steps = {"": case} if "path" in case else case
            for step, exchange in steps.items():
                if isinstance(exchange, dict) and exchange.get("path") in paths:
                    yield pytest.param(exchange, id=f"{file}-{name}-{step}")


def body_of(exchange: Exchange) -> bytes:
    """The body that was sent."""
    request = exchange["request"]
    raw: str | None = request.get("__raw__") if isinstance(request, dict) else None
    return (raw if raw is not None else json.dumps(request)).encode()
