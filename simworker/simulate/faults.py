"""What goes wrong in a simulation, and when."""

import math
import re

import msgspec

FAULTS = (
    "restart:WORKER@SECONDS",
    "lost-events:SHARE",
    "slow:WORKER=FACTOR",
)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: `kind` is the word before the colon of `FAULTS`.

    `worker` counts from 0. `amount` is the second of a restart, the share of event
    batches that never arrive, or how many times as long a worker takes.
    """

    kind: str
    worker: int = 0
    amount: float = 0.0


def read_fault(text: str) -> Fault:
    """A fault as an option tells it; raises ValueError."""
    for kind, pattern in (
        ("restart", r"restart:(?P<worker>\d+)@(?P<amount>\d+(\.\d+)?)"),
        ("slow", r"slow:(?P<worker>\d+)=(?P<amount>\d+(\.\d+)?)"),
        ("lost-events", r"lost-events:(?P<amount>0?\.\d+|0|1)"),
    ):
        found = re.fullmatch(pattern, text)
        if found is None:
            continue
        named = found.groupdict()
        amount = float(named["amount"])
        if not math.isfinite(amount) or (kind == "slow" and amount <= 0):
            break
        return Fault(kind=kind, worker=int(named.get("worker") or 0), amount=amount)
    raise ValueError(f"{text!r} is none of {', '.join(FAULTS)}")
