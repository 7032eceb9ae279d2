"""`kv-gateway doctor`: does each worker answer, send events, render alike?

A gateway that serves nobody: it contacts the workers, follows their events, asks for
proof of their rendering, and prints what it knows of each. With `--probe` it sends each
worker small chats, after which events must arrive and cached tokens be told. Only then
does it take events that one process alone can have (`hearing.py`).
"""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec

from gateway.app import Gateway
from gateway.doctor.diagnosis import Checkup, examine, tells_load
from gateway.doctor.feed_findings import heard, reached
from gateway.doctor.hearing import Hearing, hearing
from gateway.doctor.source_findings import examine_sources
from gateway.doctor.trial import Trial, try_out
from gateway.settings.config import Config
from gateway.settings.options import SECONDS, option
from gateway.settings.values import positive
from kvindex.standing import FeedState
from router.proof import PENDING, Blocker
from router.worker import Worker

LOOK_S = 0.1
EVENTS_S = 5.0
"""So long after its chats a worker's events may take."""
IDLE_S = 1.0
"""So long a worker that is sent nothing is listened to."""
REACH_S = 4.0
"""After so long it is known if anybody publishes where events should come from."""
FETCH_S = 11.0
"""After so long a route has failed that hands out events, and hangs."""
NO_USE = ("cannot connect", "answers 40")
"""Words that say why a worker tells nothing, and that waiting mends nothing."""
NO_MODEL = "no_model"
COLUMNS = (
    "worker",
    "state",
    "engine",
    "events from",
    "KV events",
    "block size",
    "cached tokens",
    "load",
    "rendering",
)


class DoctorConfig(Config, frozen=True, kw_only=True):
    """The options of the front door, and how long to look."""

    wait: Annotated[
        float,
        option(
            "seconds to wait for answers, events and proof",
            metavar="SECONDS",
            parse=positive,
        ),
    ] = 15 * SECONDS


async def check(config: DoctorConfig) -> list[Checkup]:
    """Examine every worker; ConfigError for a model that cannot be loaded."""
    hears = hearing(config.kv_events_bind, probes=config.probe)
    gateway = Gateway(config, serves=False, consumes=config.probe)
    loop = asyncio.get_running_loop()
    end = loop.time() + config.wait
    await gateway.start()
    try:
        workers = gateway.pool.workers
        await _until(lambda: all(_answered(gateway, w) for w in workers), end)
        known = [worker for worker in workers if worker.url in gateway.monitor.facts]
        trials = await try_out(config, known, config.wait) if config.probe else {}
        await _listen(config, known, trials)
        await _fetched(gateway, known)
        await _until(lambda: all(_settled(gateway, w) for w in known), end)
        standings = [source.standing for source in gateway.discovery.sources]
        named = gateway.fleet.namings.counts()
        return [
            *(_examined(gateway, w, trials.get(w.url), hears) for w in workers),
            *examine_sources(standings, named),
            *hears.own(),
        ]
    finally:
        await gateway.stop()


def _examined(
    gateway: Gateway, worker: Worker, trial: Trial | None, hears: Hearing
) -> Checkup:
    facts, sources = (
        gateway.monitor.facts.get(worker.url),
        gateway.monitor.sources(worker),
    )
    keyed = bool(worker.api_key or gateway.config.worker_api_key)
    unheard = hears.unheard(sources)
    found = examine(worker, facts, trial, unheard, sources, keyed=keyed)
    findings = (*found.findings, *hears.fetched(worker, sources))
    return msgspec.structs.replace(found, findings=findings)


async def _listen(
    config: DoctorConfig, workers: Sequence[Worker], trials: Mapping[str, Trial]
) -> None:
    """Wait for events and loads, for a while; `trials` came of small chats, if any."""
    loop = asyncio.get_running_loop()

    def said() -> bool:
        return all(heard(worker) and tells_load(worker) for worker in workers)

    if not config.probe:
        await _until(said, loop.time() + IDLE_S)
        known = loop.time() + REACH_S
        await _until(lambda: all(map(reached, workers)), known)
        return
    await _until(said, loop.time() + EVENTS_S / 2)
    answering = [w for w in workers if trials[w.url].problem is None]
    if unheard := [worker for worker in answering if not heard(worker)]:
        # Their chats may have been too early: before anybody listened to the events.
        await try_out(config, unheard, config.wait)
    await _until(said, loop.time() + EVENTS_S / 2)


async def _fetched(gateway: Gateway, workers: Sequence[Worker]) -> None:
    """Wait until it is known whether events can be fetched where they are."""
    drained = [w for w in workers if gateway.monitor.sources(w).drained]
    end = asyncio.get_running_loop().time() + FETCH_S
    await _until(lambda: all(map(reached, drained)), end)


async def _until(holds: Callable[[], bool], end: float) -> None:
    """Wait until it holds, or the time is up."""
    loop = asyncio.get_running_loop()
    while not holds() and loop.time() < end:  # noqa: ASYNC110 - it has many causes
        await asyncio.sleep(LOOK_S)


def _answered(gateway: Gateway, worker: Worker) -> bool:
    """Whether it said who it is, is not there, or refuses to say."""
    hopeless = any(why in worker.reason for why in NO_USE)
    return worker.url in gateway.monitor.facts or hopeless


def _settled(gateway: Gateway, worker: Worker) -> bool:
    """Whether there is no proof and no replay to wait for."""
    feeds = (known.feed for known in worker.knowledge.values())
    if any(feed.state is FeedState.REPLAYING for feed in feeds):
        return False
    proof = worker.proof
    if not isinstance(proof, Blocker) or proof.reason not in (PENDING, NO_MODEL):
        return True
    # A model that another worker told where to find is there only now.
    find, names = gateway.renderers.find, worker.names.items()
    return proof.reason == NO_MODEL and not any(find(n, m.base) for n, m in names)


def report(checkups: Sequence[Checkup]) -> str:
    """One table, then each problem with its remedy, then what is not known."""
    rows = [COLUMNS, *(map(_row, checkups))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    table = "\n".join(line.rstrip() for line in lines)
    problems, unknown = _said(checkups, wrong=True), _said(checkups, wrong=False)
    return "\n".join([table, "", *(problems or ["nothing is wrong"]), *unknown, ""])


def _row(checkup: Checkup) -> tuple[str, ...]:
    return (
        checkup.url,
        checkup.state,
        checkup.engine,
        checkup.source,
        checkup.events,
        checkup.block_size,
        checkup.cached_tokens,
        checkup.load,
        checkup.rendering,
    )


def _said(checkups: Sequence[Checkup], *, wrong: bool) -> list[str]:
    verb = "mend" if wrong else "find out"
    return [
        f"{checkup.url}: {finding.problem}\n    {verb}: {finding.remedy}"
        for checkup in checkups
        for finding in checkup.findings
        if finding.wrong is wrong
    ]


def diagnose(config: DoctorConfig) -> int:
    """Examine, print, and say by the exit status whether something is wrong."""
    if sys.stderr.isatty():
        text = f"asking the workers, for {config.wait:g} s at most ..."
        print(text, file=sys.stderr)  # noqa: T201
    checkups = asyncio.run(check(config))
    sys.stdout.write(report(checkups))
    return int(any(f.wrong for checkup in checkups for f in checkup.findings))
