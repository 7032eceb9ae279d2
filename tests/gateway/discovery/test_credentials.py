"""The files of a service account: read anew, sent where they are safe, or refused."""

import random
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.discovery.api_server import ApiServer
from gateway.discovery.credentials import ServiceAccount
from gateway.discovery.standing import SourceFailed, SourceStanding
from gateway.settings.discovery_config import KubernetesService
from tests.gateway.discovery.api import PATH, ScriptedApi
from tests.proxy.certificates import Authority

SERVICE = KubernetesService("llm", "vllm")


def test_both_are_read_anew(tmp_path: Path) -> None:
    """A token that changed is the one that is sent; there may be none."""
    account = ServiceAccount(tmp_path)
    assert account.read().token is None
    (tmp_path / "token").write_text("one\n")
    assert account.read().token == "one"
    (tmp_path / "token").write_text("two")
    assert account.read().token == "two"
    assert account.read().context is account.read().context


@pytest.mark.parametrize(
    ("name", "text"),
    [("token", b""), ("token", b"a b"), ("token", b"\xff"), ("ca.crt", b"no PEM")],
)
def test_files_that_are_no_such_thing(tmp_path: Path, name: str, text: bytes) -> None:
    """A failure like any other: the workers stay, and it is tried again."""
    (tmp_path / name).write_bytes(text)
    with pytest.raises(SourceFailed) as failed:
        ServiceAccount(tmp_path).read()
    assert failed.value.reason == "credentials"


async def test_the_token_is_not_for_everybody(
    api: ScriptedApi, account: Path, client: aiohttp.ClientSession
) -> None:
    """Not sent in the clear to another machine, nor to wherever a redirect leads."""
    near = ApiServer(
        api.url, ServiceAccount(account), SERVICE, client, rng=random.Random(1)
    )
    far = ApiServer(
        "http://10.0.0.1",
        ServiceAccount(account),
        SERVICE,
        client,
        rng=random.Random(1),
    )
    credentials = ServiceAccount(account).read()
    assert near._headers(credentials)["Authorization"] == "Bearer first"
    assert "Authorization" not in far._headers(credentials)
    api.fails = [web.Response(status=307, headers={"Location": api.url + PATH})]
    with pytest.raises(SourceFailed, match="answers 307"):
        await near.list()
    assert len(api.requests) == 1


async def test_the_authority_is_that_of_the_cluster(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    """A server that ca.crt does not vouch for gets no request; nor after a change."""
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "7"}})

    app = web.Application()
    app.router.add_get(PATH, answer)
    runner = web.AppRunner(app)
    await runner.setup()
    served = ours.server("127.0.0.1")
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=served).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    api = ApiServer(
        url, ServiceAccount(tmp_path), SERVICE, client, rng=random.Random(1)
    )
    trusted = tmp_path / "ca.crt"
    try:
        for authority in (None, theirs):
            if authority is not None:
                trusted.write_bytes(authority.file.read_bytes())
            with pytest.raises(SourceFailed, match="its certificate does not hold"):
                await api.list()
        trusted.write_bytes(ours.file.read_bytes())
        assert await api.list() == ([], "7")
    finally:
        await runner.cleanup()


def test_waits_between_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They double, within a bound; as long as was asked; one success ends that."""
    monkeypatch.setattr("gateway.discovery.standing.FIRST_BACK_OFF_S", 0.5)

    class Middle(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return 1.0

    standing = SourceStanding("s", ("r",), clock=lambda: 5.0, rng=Middle())
    failed = SourceFailed("r", "no")
    waits = [standing.failed(failed) for _ in range(8)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    standing.succeeded()
    assert standing.failed(failed) == 0.5
    assert standing.failed(SourceFailed("r", "no", wait_s=9.0)) == 9.0
    assert standing.failed(SourceFailed("r", "no", wait_s=1e9)) == 30.0
    assert standing.failures["r"] == 11
    assert standing.succeeded_at == 5.0
