"""Comparing with other routers and tools: what is counted, what is missing is told."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from bench import _environments, peers, tools
from bench._chat_clients import Asked, hold
from bench._environments import NotInstalled, Requirements, python_of
from bench._routers import SimulatedWorker, routers
from bench.peers import Figures, Run, ahead, figures, table
from simworker.workload import Session, Turn

EVENT = 'data: {"choices": [{"delta": {"content": "yes"}}]}\n\n'
USAGE = (
    'data: {"choices": [], "usage": {"prompt_tokens": 40, '
    '"prompt_tokens_details": {"cached_tokens": 32}}}\n\ndata: [DONE]\n\n'
)


@pytest.fixture
async def router() -> AsyncIterator[str]:
    """The URL of a server whose second answer to each chat is a refusal."""

    async def answer(request: web.Request) -> web.Response:
        messages = (await request.json())["messages"]
        if len(messages) == 4:
            return web.json_response({}, status=503)
        return web.Response(text=EVENT + USAGE, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_chats_go_on_after_a_failure(router: str) -> None:
    """Each request is counted, with what it found; a refusal is one that failed."""
    turns = tuple(Turn(message="go on", gap_s=0, max_tokens=4) for _ in range(3))
    chat = Session(name="one", start_s=0, system="be brief", turns=turns)
    asked = await hold(router, "demo", [chat, chat])
    assert [one.failure for one in asked] == ["", "status 503", ""] * 2
    assert [one.cached_tokens for one in asked] == [32, 0, 32] * 2
    assert all(one.ttft_s for one in asked if not one.failure)


def test_figures_are_over_all_runs() -> None:
    """Hits by tokens, times of what came, CPU by requests, whether they came or not."""
    runs = [
        Run([Asked(ttft_s=0.1, prompt_tokens=100, cached_tokens=50)], 0.002),
        Run([Asked(ttft_s=0.3, prompt_tokens=300, cached_tokens=50),
             Asked(failure="status 503")], 0.004),
    ]  # fmt: skip
    result = figures(runs)
    assert (result.requests, result.hit_rate) == (3, 0.25)
    assert result.success == pytest.approx(2 / 3)
    assert result.ttft_mean_s == pytest.approx(0.2)
    assert result.cpu_ms == pytest.approx(2.0)
    assert result.failures == ["status 503"]


def result(hit_rate: float, ttft_s: float) -> Figures:
    """Figures that differ in these."""
    asked = Asked(
        ttft_s=ttft_s, prompt_tokens=1000, cached_tokens=round(1000 * hit_rate)
    )
    return figures([Run([asked], 0.001)])


def test_ours_has_to_be_ahead_in_both() -> None:
    """Of each, in hit rate and in mean TTFT."""
    ours = result(0.8, 0.2)
    assert ahead({"ours": ours, "a": result(0.7, 0.3)})
    assert ahead({"ours": ours, "ours, too": result(0.9, 0.1)})
    assert not ahead({"ours": ours, "a": result(0.7, 0.1)})
    assert not ahead({"ours": ours, "a": result(0.9, 0.3)})


def test_what_cannot_run_is_in_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the reason, once; the others are compared."""

    def one_run(router: object, *_: object) -> Run:
        if "smg" in getattr(router, "name", ""):
            raise NotInstalled("no such wheel")
        ttft_s = 0.1 if "ours" in getattr(router, "name", "") else 0.2
        return Run([Asked(ttft_s=ttft_s, prompt_tokens=10, cached_tokens=5)], 0.001)

    monkeypatch.setattr(peers, "_run", one_run)
    peers.run(["--rounds", "2", "--chats", "1"])
    page = capsys.readouterr().out
    assert "| smg 1.13.0, cache_aware | cannot be installed: no such wheel |" in page
    assert "| sglang-router 0.3.2, cache_aware | 2 | 100.0% | 50.0% | 200 |" in page


def test_each_router_is_told_its_workers() -> None:
    """In its own words; where events are, for those that want to know."""
    workers = [SimulatedWorker(f"http://w{n}", f"tcp://w{n}:5557") for n in (1, 2)]
    commands = {one.name: one.command("python", workers, 80) for one in routers("demo")}
    ours = commands["ours, with events"]
    assert ours[ours.index("--workers") + 1] == "http://w1,http://w2"
    kv_aware = commands["vllm-router 0.1.17, kv_aware"]
    assert "http://w2=tcp://w2:5557" in kv_aware
    smg = commands["smg 1.13.0, cache_aware"]
    at = smg.index("--worker-urls")
    assert smg[at + 1 : at + 3] == ["http://w1", "http://w2"]


def test_an_environment_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again only for other requirements."""
    ran: list[tuple[str, ...]] = []

    def run(*words: str) -> None:
        ran.append(words)
        (tmp_path / "one").mkdir(exist_ok=True)

    monkeypatch.setattr(_environments, "_run", run)
    wanted = Requirements("one", ("a==1",), ("b==2",))
    python = python_of(tmp_path, wanted)
    assert python == tmp_path / "one" / "bin" / "python"
    assert [words[-1] for words in ran] == [str(tmp_path / "one"), "b==2", "a==1"]
    python_of(tmp_path, wanted)
    assert len(ran) == 3
    python_of(tmp_path, Requirements("one", ("a==2",)))
    assert len(ran) == 5


def test_why_it_could_not_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installer's own error, not its last word."""
    lines = "import sys; sys.exit('WARNING: x\\nERROR: no such package\\nhint: y')"
    with pytest.raises(NotInstalled, match=r"^ERROR: no such package$"):
        _environments._run(sys.executable, "-c", lines)


def test_a_tool_that_is_not_there(tmp_path: Path) -> None:
    """`vllm` is only run where it is named; what fails says what it said."""
    every = tools.tools("http://g", tmp_path, tmp_path, None)
    serve = next(tool for tool in every if tool.name == "vllm bench serve")
    with pytest.raises(NotInstalled, match="--vllm"):
        tools.said(serve, tmp_path, tmp_path)
    fails = tools.Tool(name="x", program=Path(sys.executable), words=("-c", "1/0"))
    with pytest.raises(tools.Failed, match="ZeroDivisionError"):
        tools.said(fails, tmp_path, tmp_path)


def test_the_table_is_markdown() -> None:
    """A line for each, of as many cells as the head has."""
    page = table({"ours": result(0.8, 0.2)}, {"other": "does not run: status 1"})
    lines = page.splitlines()
    assert {line.count("|") for line in lines} == {9}
    assert lines[2] == "| ours | 1 | 100.0% | 80.0% | 200 | 200 | 200 | 1.00 |"
