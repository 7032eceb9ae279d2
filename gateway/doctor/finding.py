"""One thing that is wrong with a worker, or not known of it."""

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """Something wrong, or unless `wrong` only unknown, and the flag that mends it."""

    problem: str
    remedy: str
    wrong: bool = True
