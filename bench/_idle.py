"""A process that only sleeps, and tells how late it woke: what the machine adds."""

import time

from gateway.housekeeping import LAG_PERIOD_S

if __name__ == "__main__":
    print("ready", flush=True)
    while True:
        due = time.monotonic() + LAG_PERIOD_S
        time.sleep(LAG_PERIOD_S)
        print("late", time.monotonic() - due, flush=True)
