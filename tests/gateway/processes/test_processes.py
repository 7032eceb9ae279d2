"""Two processes on one port: pages of both, changes in both, one that dies, the end."""

import itertools
import json
import os
import re
import shlex
import signal
import tempfile
import urllib.error
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.processes import child
from gateway.serve import Leaving
from render import Renderer
from tests.documents import ROOT
from tests.gateway.command import refused
from tests.gateway.processes.rig import Several, asked, runs, several, until, workers
from tests.running import MODEL

DEAD = "http://127.0.0.1:1"
OTHER = "http://127.0.0.1:2"
REQUESTS = "kv_gateway_requests_total"


@pytest.fixture(scope="module")
def gateway(
    renderer: Renderer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Several]:
    """Two processes in front of a worker of either kind of feed."""
    log = tmp_path_factory.mktemp("processes") / "log"
    with workers(renderer, "vllm", "trtllm") as fleet:
        urls = ",".join(worker.url for worker in fleet)
        with several(log, "--workers", urls) as running:
            yield running


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory for sockets, whose paths may not be long."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def states(gateway: Several, url: str) -> dict[int, str]:
    """What each process says of a worker."""
    page = gateway.page("/gateway/workers")
    return {w["process"]: w["state"] for w in page["workers"] if w["url"] == url}


def test_both_answer(gateway: Several) -> None:
    """The system spreads connections; each process counts its own."""
    for number in range(24):
        assert gateway.chat(f"hello {number}") == 200
    counted: Counter[str] = Counter()
    for family in text_string_to_metric_families(gateway.page("/metrics")):
        for sample in family.samples:
            assert "process" in sample.labels
            endpoint = sample.labels.get("endpoint")
            if (sample.name, endpoint) == (REQUESTS, "chat_completions"):
                counted[sample.labels["process"]] += int(sample.value)
    assert set(counted) == {"0", "1"}
    assert counted.total() == 24


@pytest.mark.parametrize("path", ["/metrics", "/gateway/", "/gateway/workers"])
def test_operators_have_a_port_of_their_own(gateway: Several, path: str) -> None:
    """What is for them is not on the port of clients, and the other way round."""
    assert asked(gateway.url + path)[0] == 404
    assert asked(gateway.operators + path)[0] == 200
    assert asked(gateway.operators + "/v1/models")[0] == 404
    for probe in ("/health", "/ready"):
        assert asked(gateway.url + probe)[0] == 200
        assert asked(gateway.operators + probe)[0] == 200


def test_the_guard(gateway: Several) -> None:
    """It is as on one process: names of the outside, and other sites, get nothing."""
    for path in ("/gateway/workers", "/gateway/index", "/gateway/recent"):
        assert asked(gateway.operators + path, Host="evil.example.com")[0] == 403
    sent = asked(gateway.operators + "/gateway/workers", "POST", {"url": DEAD},
                 Origin="http://elsewhere")  # fmt: skip
    assert sent[0] == 403


def test_one_consumes_what_only_one_may(gateway: Several) -> None:
    """Each subscribes to what is published; one fetches; the other says so."""
    page = gateway.page("/gateway/workers")
    told = {
        (worker["engine"], worker["process"]): worker["feeds"][0]
        for worker in page["workers"]
    }
    assert told["vllm", 0]["source"] == told["vllm", 1]["source"]
    assert told["vllm", 1]["state"] == "live"
    assert told["trtllm", 0]["source"] == "POST /kv_cache_events"
    assert told["trtllm", 1]["source"] is None
    assert told["trtllm", 1]["state"] == "estimated"
    assert told["trtllm", 1]["reason"].startswith("process 0 alone fetches them")
    assert gateway.log.count("of its KV events process 0 alone") == 1
    assert " process 1 gateway.events.owners: " in gateway.log


def test_pages_of_both(gateway: Several) -> None:
    """Totals are added up, parts name their process."""
    numbers = itertools.count()
    until(lambda: _has_both_busy(gateway, f"page {next(numbers)}"))
    index = gateway.page("/gateway/index")
    assert index["blocks"] >= sum(owner["blocks"] for owner in index["owners"]) / 2
    recent = gateway.page("/gateway/recent")
    assert {decision["process"] for decision in recent["decisions"]} == {0, 1}
    ages = [decision["ago_s"] for decision in recent["decisions"]]
    assert ages == sorted(ages)


def _has_both_busy(gateway: Several, text: str) -> bool:
    """After one chat more: have both decided, and heard of blocks?"""
    assert gateway.chat(text) == 200
    owners = gateway.page("/gateway/index")["owners"]
    decisions = gateway.page("/gateway/recent")["decisions"]
    holders = {owner["process"] for owner in owners if owner["blocks"]}
    return holders == {decision["process"] for decision in decisions} == {0, 1}


def test_an_explanation_is_one_process_s(gateway: Several) -> None:
    """The one that is named, or any."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
    url = gateway.operators + "/gateway/explain"
    status, page = asked(url + "?process=1", "POST", body)
    assert (status, page["process"]) == (200, 1)
    assert len(page["workers"]) == 2
    assert asked(url, "POST", body)[1]["process"] == 0
    assert asked(url + "?process=7", "POST", body)[0] == 400
    assert asked(url, "POST", {})[0] == 400


def test_a_change_is_in_both_when_it_is_answered(gateway: Several) -> None:
    """Added, drained, and refused as one process refuses it."""
    url = gateway.operators + "/gateway/workers"
    for worker in (DEAD, OTHER):
        status, page = asked(url, "POST", {"url": worker})
        assert (status, page["url"], page["processes"]) == (201, worker, [0, 1])
        assert set(states(gateway, worker)) == {0, 1}
    assert asked(url, "POST", {"url": DEAD})[0] == 409
    assert asked(url, "POST", {"nonsense": 1})[0] == 400
    assert asked(url, "PATCH", {"url": DEAD, "state": "draining"})[0] == 200
    assert states(gateway, DEAD) == {0: "draining", 1: "draining"}
    status, page = asked(url, "DELETE", {"url": OTHER})
    assert (status, page["removed"], page["processes"]) == (200, OTHER, [0, 1])
    assert states(gateway, OTHER) == {}
    assert asked(f"{url}?url={OTHER}", "DELETE")[0] == 404
    assert asked(url, "PUT", {})[0] == 405


def test_what_the_document_asks(gateway: Several) -> None:
    """Each command on docs/scaling.md gets what it is said to get."""
    text = (ROOT / "docs" / "scaling.md").read_text()
    found = re.findall(r"^    curl -s (.*127\.0\.0\.1:9090/.*)$", text, re.M)
    pages = {}
    for command in found:
        url, *flagged = shlex.split(command)
        path, data = url.removeprefix("http://127.0.0.1:9090"), flagged[1:]
        method, body = ("POST", json.loads(data[0])) if data else ("GET", None)
        status, page = asked(gateway.operators + path, method, body)
        assert status == 200
        pages[path] = page
    assert pages["/gateway/workers"]["processes"][1]["restarts"] == 0
    assert 'process="1"' in pages["/metrics"]
    assert pages["/gateway/explain?process=1"]["process"] == 1


def test_one_that_dies_is_started_anew(gateway: Several) -> None:
    """Clients go to the other meanwhile; the new one knows what was changed."""
    first, second = gateway.pids()
    assert second is not None
    os.kill(second, signal.SIGKILL)
    until(lambda: not runs(second))
    page = until(lambda: _with_one(gateway))
    assert page["processes"][1]["reason"] == "SIGKILL"
    assert {worker["process"] for worker in page["workers"]} == {0}
    answered = [_chat(gateway, number) for number in range(8)]
    assert answered.count(200) >= 7  # one may have been on its way to the other
    until(lambda: gateway.page("/gateway/workers")["processes"][1]["state"] == "ready")
    assert states(gateway, DEAD) == {0: "draining", 1: "draining"}
    assert gateway.page("/gateway/workers")["processes"][1]["restarts"] == 1
    assert gateway.pids()[0] == first
    assert gateway.log.count("process 1 ended (SIGKILL)") == 1
    page = gateway.page("/metrics")
    assert 'kv_gateway_process_restarts_total{process="1"} 1.0' in page
    assert 'kv_gateway_process_restarts_total{process="0"} 0.0' in page


def _with_one(gateway: Several) -> Any:
    page = gateway.page("/gateway/workers")
    return page if page["processes"][1]["state"] == "ended" else None


def _chat(gateway: Several, number: int) -> int:
    try:
        return gateway.chat(f"again {number}")
    except (urllib.error.URLError, ConnectionError):
        return 0


def test_the_end(gateway: Several) -> None:
    """A signal drains all of them; nothing is left, and the status is 0."""
    pids = [pid for pid in gateway.pids() if pid]
    gateway.parent.send_signal(signal.SIGTERM)
    assert gateway.parent.wait(30) == 0
    assert not any(map(runs, pids))
    assert "Traceback" not in gateway.log


def test_a_second_signal_ends_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_path: Path
) -> None:
    """The first one drains, as long as that takes; the second does not wait.

    The parent clears nothing away then: its processes do.
    """
    monkeypatch.setenv("TMPDIR", str(short_path))
    words = ("--workers", DEAD, "--drain-delay", "60")
    with several(tmp_path / "log", *words) as running:
        pids = [pid for pid in running.pids() if pid]
        running.parent.terminate()
        leaving = {"status": "leaving"}
        until(lambda: asked(running.operators + "/ready") == (503, leaving))
        assert asked(running.url + "/ready") == (503, leaving)
        assert all(map(runs, pids))
        assert len(list(short_path.glob("kv-gateway-processes-*/*.sock"))) == 2
        running.parent.terminate()
        assert running.parent.wait(30) == -signal.SIGTERM
        until(lambda: not any(map(runs, pids)))
    assert list(short_path.glob("kv-gateway-processes-*")) == []


async def test_without_a_parent_they_leave(tmp_path: Path) -> None:
    """Whatever became of it: nobody would start others, or end these.

    The last of them leaves no directory of sockets behind.
    """
    directory = tmp_path / "sockets"
    directory.mkdir()
    paths = [directory / f"{number}.sock" for number in range(2)]
    for path in paths:
        path.touch()
    for path in paths:
        assert directory.exists()
        leaving = Leaving()
        child.Leash(leaving, path).connection_lost(None)
        assert leaving.first is signal.SIGTERM
        assert leaving.once.is_set()
    assert not directory.exists()


def test_operators_need_a_port(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, as for any mistake."""
    line = refused(capsys, "--workers", DEAD, "--processes", "2")
    assert "--admin-port" in line


def test_as_many_as_a_machine_may_run(capsys: pytest.CaptureFixture[str]) -> None:
    """No more are tried."""
    words = ("--workers", DEAD, "--admin-port", "0", "--processes", "257")
    assert "--processes '257': is more than 256" in refused(capsys, *words)


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What each of them refuses is said once."""
    words = ["--workers", DEAD, "--processes", "2", "--host", "127.0.0.1"]
    words += ["--port", "0", "--admin-port", "0", "--model", "/no/such/model"]
    assert "/no/such/model" in refused(capsys, *words)


def test_ports_in_use(capsys: pytest.CaptureFixture[str], busy_port: int) -> None:
    """Another gateway's are not shared: each is named by its option."""
    words = ("--workers", DEAD, "--processes", "2", "--host", "127.0.0.1")
    taken = str(busy_port)
    line = refused(capsys, *words, "--port", taken, "--admin-port", "0")
    assert f"--port: 127.0.0.1:{taken} is in use" in line
    line = refused(capsys, *words, "--port", "0", "--admin-port", taken)
    assert f"--admin-port: 127.0.0.1:{taken} is in use" in line
    line = refused(capsys, *words, "--port", "8080", "--admin-port", "8080")
    assert "--admin-port 8080 is the port of clients" in line
