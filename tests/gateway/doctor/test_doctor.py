"""The doctor: what it finds wrong with real simulated workers, and what it says."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from gateway.cli import main
from gateway.doctor.checkup import DoctorConfig, check, diagnose, report
from gateway.doctor.diagnosis import Checkup
from gateway.doctor.finding import Finding
from gateway.doctor.hearing import TAKEN
from gateway.doctor.remedies import RENDERING
from gateway.errors import ConfigError
from gateway.settings.config import worker_specs
from gateway.settings.values import EventEndpoint
from router.proof import PENDING
from tests.gateway.doctor.hurried import hurried
from tests.running import SIM, WITH_EVENTS, StartWorker, free_port

NOBODY = "http://127.0.0.1:9"


def config(*urls: str, **options: object) -> DoctorConfig:
    """The doctor's options for these workers."""
    settings = {"wait": 20.0, **options}
    return DoctorConfig(workers=(urls,), **settings)  # type: ignore[arg-type]


async def test_healthy_workers_of_each_engine(
    start_worker: StartWorker, model_dir: Path
) -> None:
    """Nothing is wrong: each answers, its events arrive, its rendering is proven."""
    engines = ("vllm", "sglang", "trtllm")
    workers = [
        await start_worker(msgspec.structs.replace(WITH_EVENTS, engine=engine))
        for engine in engines
    ]
    urls = [worker.url for worker in workers]
    found = await check(config(*urls, probe=True, model=((None, str(model_dir)),)))
    assert [checkup.findings for checkup in found] == [(), (), (TAKEN,)]
    assert [c.engine.split()[0] for c in found] == list(engines)
    assert {c.events for c in found} == {"live, heard"}
    assert {c.cached_tokens for c in found} == {"told"}
    sources = ["/metrics", "/v1/loads", "/prometheus/metrics"]
    assert [c.load for c in found] == sources
    assert [c.rendering for c in found] == [
        "proven by probes",
        "proven by probes",
        "proven by digest",
    ]
    assert "\nnothing is wrong\n" in report(found)


async def test_each_fault_names_what_mends_it(
    start_worker: StartWorker, model_dir: Path
) -> None:
    """One that is not there, one without events, one of another template."""
    mute = await start_worker(SIM)
    template = "{{ messages[0].content }}"
    other = await start_worker(
        msgspec.structs.replace(WITH_EVENTS, chat_template=template)
    )
    urls = (NOBODY, mute.url, other.url)
    found = await check(config(*urls, probe=True, model=((None, str(model_dir)),)))
    absent, silent, differs = (checkup.findings for checkup in found)
    assert absent[0].problem == "cannot connect: Connection refused"
    assert silent[0].problem == "no KV events: no event source"
    assert "--kv-events-config" in silent[0].remedy
    assert "probe_differs" in differs[0].problem
    assert "--chat-template" in differs[0].remedy
    text = report(found)
    assert text.count("mend: ") == 3
    assert found[0].state == "no answer"


async def test_workers_that_say_nothing_are_started_otherwise(
    start_worker: StartWorker, model_dir: Path
) -> None:
    """Each engine's own flags, for events and for cached tokens."""
    flags = {
        "vllm": ("--kv-events-config", "--enable-prompt-tokens-details"),
        "sglang": ("--kv-events-config", "--enable-cache-report"),
        "trtllm": ("event_buffer_max_size", "newer releases do"),
    }
    silent = msgspec.structs.replace(SIM, prompt_tokens_details=False)
    workers = [
        await start_worker(msgspec.structs.replace(silent, engine=engine))
        for engine in flags
    ]
    urls = [worker.url for worker in workers]
    with hurried():
        found = await check(config(*urls, probe=True, model=((None, str(model_dir)),)))
    for checkup, expected in zip(found, flags.values(), strict=True):
        remedies = [finding.remedy for finding in checkup.findings if finding.wrong]
        for flag, remedy in zip(expected, remedies, strict=True):
            assert flag in remedy
        assert checkup.cached_tokens == "not told"


@pytest.mark.parametrize("probe", [True, False])
async def test_events_at_another_port(
    probe: bool, start_worker: StartWorker, model_dir: Path
) -> None:
    """Nobody publishes where the operator said: the endpoint is named."""
    worker = await start_worker(SIM)
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    events = (EventEndpoint(worker.url, 0, endpoint),)
    sources = ((None, str(model_dir)),)
    with hurried():
        (found,) = await check(
            config(worker.url, probe=probe, model=sources, kv_events=events)
        )
    finding = found.findings[0]
    assert finding.wrong
    assert f"nothing publishes at {endpoint}" in finding.problem
    assert found.events == "silent, nothing heard"
    assert worker.url in finding.remedy


async def test_each_rank_is_sent_a_chat(
    start_worker: StartWorker, model_dir: Path
) -> None:
    """Of a worker whose ranks can be asked for by name; all are heard."""
    ranked = msgspec.structs.replace(WITH_EVENTS, data_parallel_size=2)
    worker = await start_worker(ranked)
    sources = ((None, str(model_dir)),)
    (found,) = await check(config(worker.url, probe=True, model=sources))
    assert found.events == "live, 2 of 2 ranks heard"
    assert found.findings == ()


def test_what_is_only_unknown_is_not_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit status is 0, and the report says how to find out."""
    unknown = Finding("nothing heard", "--probe", wrong=False)

    async def one(config: DoctorConfig) -> list[Checkup]:
        return [Checkup(url="http://w1:8000", state="ready", findings=(unknown,))]

    monkeypatch.setattr("gateway.doctor.checkup.check", one)
    assert diagnose(config("http://w1:8000")) == 0
    text = "nothing is wrong\nhttp://w1:8000: nothing heard\n    find out: --probe\n"
    said = capsys.readouterr()
    assert said.out.endswith(text)
    assert said.err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    diagnose(config("http://w1:8000"))
    assert capsys.readouterr().err.startswith("asking the workers")


async def test_nothing_is_waited_for_where_nothing_is_to_come(
    start_worker: StartWorker, model_dir: Path
) -> None:
    """One that is not there, one without events, an idle one: done in a moment."""
    mute, idle = await start_worker(SIM), await start_worker(WITH_EVENTS)
    sources = ((None, str(model_dir)),)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await check(config(NOBODY, mute.url, idle.url, wait=60.0, model=sources))
    assert loop.time() - begun < 20.0


async def test_events_are_only_heard_of_after_a_request(
    start_worker: StartWorker, model_dir: Path
) -> None:
    """Without --probe an idle worker has said nothing, and the doctor says so."""
    worker = await start_worker(WITH_EVENTS)
    sources = ((None, str(model_dir)),)
    (found,) = await check(config(worker.url, wait=3.0, model=sources))
    assert found.events == "live, nothing heard"
    (finding,) = found.findings
    assert "--probe" in finding.remedy
    assert not finding.wrong
    assert report([found]).endswith(
        f"nothing is wrong\n{worker.url}: {finding.problem}\n"
        f"    find out: {finding.remedy}\n"
    )


def test_the_report_is_a_table() -> None:
    """Columns are aligned; problems follow."""
    checkup = Checkup(
        url="http://w1:8000",
        engine="vllm 0.32.0",
        state="ready",
        events="none",
        block_size="16",
        cached_tokens="told",
        load="own requests",
        rendering=PENDING,
        findings=(Finding("no KV events", "--kv-events"),),
    )
    lines = report([checkup]).splitlines()
    assert lines[0].index("state") == lines[1].index("ready")
    assert lines[0].index("rendering") == lines[1].index(PENDING)
    assert lines[3:] == ["http://w1:8000: no KV events", "    mend: --kv-events"]


def test_each_reason_has_a_remedy() -> None:
    """Whatever keeps ids back, the doctor knows what to change."""
    from gateway.proof.prover import PROVABLE
    from gateway.proof.proving import BY_FINGERPRINT, RETRIED

    assert set(RENDERING) >= PROVABLE | BY_FINGERPRINT | RETRIED


def test_exit_status_and_mistakes(
    capsys: pytest.CaptureFixture[str], model_dir: Path
) -> None:
    """1 if something is wrong, 2 for a mistake, in one line."""
    assert main(["doctor"]) == 2
    assert "--workers" in capsys.readouterr().err
    words = ["doctor", "--workers", NOBODY, "--model", str(model_dir), "--wait", "1"]
    assert main(words) == 1
    assert "Connection refused" in capsys.readouterr().out


def test_it_takes_every_option_of_the_front_door() -> None:
    """What starts the gateway examines it, too."""
    assert worker_specs(config("http://a:1", "http://b:1"))[1].url == "http://b:1"
    with pytest.raises(ConfigError, match="no-such-model"):
        asyncio.run(check(config(NOBODY, model=((None, "/no-such-model"),))))
