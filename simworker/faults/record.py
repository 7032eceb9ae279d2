"""The faults a simulated worker can be told to play: one record, each field one fault.

Counts are of the next messages (batches; TensorRT-LLM: events) of a rank and run down;
switches stay until they are changed.
"""

import msgspec

from simworker.faults.spoiling import SPOILT

REPLAYS = ("", "slow", "hang", "cut", "refuse")
DRAINS = ("", "hang", "error", "garbage")
MANY = 1_000_000


class BadFaults(ValueError):
    """A record of faults that cannot be played: one line."""


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing is wrong by default.

    Messages on their way, which a replay has as they were:

    - `drop`: so many are lost; `mute`: all are, and numbers go on;
    - `duplicate`: so many come twice; `reorder`: so many come in reverse order, once
      the last of them is there; `delay_s`: all come so many seconds late;
    - `spoil`: the next `spoil_count` are `malformed`, `truncated`, `oversized` (and
      else in order), `wrong_type` or have `future_fields` (and else in order).

    What an engine itself gets wrong, which a replay repeats:

    - `wrong_parents`: so many stored events name a parent that never was;
    - `unknown_removals`: so many batches remove blocks that never were.

    `replay` and `drain` are how the next requests for events are served: `slow` (each
    message `pause_s` later), `hang`, `cut` (no end marker), `refuse` (no answer at
    all); for TensorRT-LLM's drain `hang` (for `pause_s`), `error`, `garbage`.
    """

    drop: int = 0
    mute: bool = False
    duplicate: int = 0
    reorder: int = 0
    delay_s: float = 0.0
    spoil: str = ""
    spoil_count: int = 1
    wrong_parents: int = 0
    unknown_removals: int = 0
    replay: str = ""
    drain: str = ""
    pause_s: float = 2.0

    def check(self) -> None:
        """Raise BadFaults for a value that makes no sense."""
        for name, known in (("spoil", SPOILT), ("replay", REPLAYS), ("drain", DRAINS)):
            if getattr(self, name) not in known:
                words = ", ".join(filter(None, known))
                raise BadFaults(f"{name} must be one of: {words}")
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, str) and not 0 <= value <= MANY:
                raise BadFaults(f"{name} must be from 0 to {MANY}")


NONE = Faults()


def read_faults(text: str | bytes) -> Faults:
    """A record from its JSON; what it does not name is not wrong. Raises BadFaults."""
    try:
        faults = msgspec.json.decode(text, type=Faults)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadFaults(str(error)) from error
    faults.check()
    return faults
