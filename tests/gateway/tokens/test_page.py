"""What docs/tokens.md tells people to type works."""

import json
import re
import shlex
from pathlib import Path

import aiohttp
import msgspec

from gateway.settings.values import declared_api
from gateway.workers.workers_file import spec_of
from tests.gateway.command import serving
from tests.gateway.tokens.rig import CHAT, ask, chat
from tests.running import StartGateway

PAGE = (Path(__file__).parents[3] / "docs" / "tokens.md").read_text()
COMMANDS = re.findall(r"^    (\S.*(?:(?<=\\)\n.*)*)$", PAGE, re.MULTILINE)


def command(*words: str) -> list[str]:
    """The words of the page's command that has these."""
    found = [c for c in COMMANDS if all(word in c for word in words)]
    assert len(found) == 1, found
    return shlex.split(found[0].replace("\\\n", " "))


async def test_the_simulated_worker_and_the_call(
    start_gateway: StartGateway, client: aiohttp.ClientSession
) -> None:
    """The worker that the page starts answers chats, and the call with ids."""
    words = command("sim-worker")[1:]
    words[words.index("--port") + 1] = "0"
    with serving(*words) as (_, url):
        gateway = await start_gateway(url)
        page = await gateway.get("/gateway/workers")
        assert [worker["api"] for worker in page["workers"]] == ["tokens"]
        assert (await ask(client, gateway.url, chat(model=None), CHAT)).status == 200
        curl = command("curl")
        path = curl[2].removeprefix("http://127.0.0.1:8080")
        body = json.loads(curl[curl.index("-d") + 1])
        told = await ask(client, gateway.url, body, path)
        assert len(told.body["choices"][0]["token_ids"]) == 5


def test_workers_are_declared_as_the_page_says() -> None:
    """By the options, and in the workers file."""
    declared = [
        declared_api(text) for text in re.findall(r"--worker-api (\S+?)`", PAGE)
    ]
    assert [one.api for one in declared] == ["tokens", "tokens"]
    assert [one.url for one in declared] == [None, "http://w2:8000"]
    (entry,) = re.findall(r"`(api = .*?)`", PAGE)
    told = msgspec.toml.decode(f'url = "http://w2:8000"\n{entry}')
    assert spec_of(told).api == "tokens"
