"""Predicted and delivered hit tokens, request by request, before real workers."""

import argparse
import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from bench._processes import running
from bench._real_traffic import COMPLETIONS, Ask, Chat, chats
from kvindex.blocks import pack_ids
from render import Renderer

TIMEOUT = aiohttp.ClientTimeout(total=120)
JSON = {"Content-Type": "application/json"}
SENT = "prompt_tokens"
_SAMPLE = re.compile(
    r'^kv_gateway_(\w+)_total\{worker="([^"]*)"\} (\S+)$', re.MULTILINE
)
COLUMNS = (
    "  #  form     turn  worker  rendered  prompt  explained  predicted  delivered  ids"
)

Counts = Counter[tuple[str, str]]
"""(counter, worker) -> value."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for; `name` is the model's as served."""

    workers: list[str]
    model: str
    name: str
    requests: int
    max_tokens: int
    seed: int


class Answer(msgspec.Struct, kw_only=True):
    """What a worker answered: its text, its usage, the prompts' ids where asked."""

    text: str = ""
    usage: dict[str, Any] | None = None
    prompts: list[list[int]] = []


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Tokens: `rendered` and `explained` (the hit) as `/gateway/explain`
    said just before; `predicted` as the gateway counted, `prompt` and `delivered` as
    the worker reported, None where they did not. `ids`: are the ids it used those that
    were rendered; None where they were not asked for. `not_rendered` is the reason for
    explaining without ids: its tokens are guesses then.
    """

    form: str
    turn: int
    worker: str
    rendered: int
    explained: int
    predicted: int | None
    prompt: int | None
    delivered: int | None
    ids: bool | None
    not_rendered: str | None

    @property
    def error(self) -> int:
        """|predicted - delivered|."""
        if self.predicted is None or self.delivered is None:
            return 0
        return abs(self.predicted - self.delivered)


class Driver:
    """Sends requests, and reads what the gateway counted for each."""

    def __init__(
        self, client: aiohttp.ClientSession, url: str, renderer: Renderer
    ) -> None:
        self._client = client
        self._url = url
        self._renderer = renderer

    async def counts(self) -> Counts:
        """The counters of `/metrics` that are by worker."""
        async with self._client.get(self._url + "/metrics") as response:
            samples = _SAMPLE.findall(await response.text())
        return Counter({(name, url): int(float(n)) for name, url, n in samples})

    async def get(self, path: str) -> Any:
        """A page of the gateway's own."""
        async with self._client.get(self._url + path) as response:
            return await response.json()

    async def send(self, ask: Ask) -> tuple[Row, Answer]:
        """Explain, send, count."""
        body = msgspec.json.encode(ask.body)
        before = await self.counts()
        async with self._client.post(self._url + "/gateway/explain", data=body) as told:
            explained = await told.json()
        answer = await self.ask(ask, body)
        grown = await self.counts()
        grown.subtract(before)
        worker = next(url for (name, url), n in grown.items() if n and name == SENT)
        weighed = next(w for w in explained["workers"] if w["url"] == worker)
        usage = answer.usage or {}
        details = usage.get("prompt_tokens_details") or {}
        row = Row(
            form=ask.form,
            turn=ask.turn,
            worker=worker,
            rendered=explained["prompt_tokens"],
            explained=explained["prompt_tokens"] - weighed["uncached_tokens"],
            predicted=None
            if grown["uncompared_requests", worker]
            else grown["predicted_hit_tokens", worker],
            prompt=usage.get("prompt_tokens"),
            delivered=details.get("cached_tokens"),
            ids=self._same_ids(ask, body, answer),
            not_rendered=explained["reason"],
        )
        return row, answer

    async def ask(self, ask: Ask, body: bytes) -> Answer:
        """Send it and read the whole answer, streamed or not."""
        answer = Answer()
        async with self._client.post(self._url + ask.path, data=body) as response:
            if response.status != 200:
                raise SystemExit(f"{response.status}: {await response.text()}")
            if not ask.body.get("stream"):
                _take(answer, await response.json())
            else:
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        _take(answer, msgspec.json.decode(line[6:]))
        return answer

    def _same_ids(self, ask: Ask, body: bytes, answer: Answer) -> bool | None:
        if not answer.prompts:
            return None
        if ask.path == COMPLETIONS:
            rendered = self._renderer.render_completion(body)
        else:
            rendered = [self._renderer.render_chat(body)]
        ids = [pack_ids(prompt) for prompt in answer.prompts]
        return ids == [prompt.token_ids for prompt in rendered]


def _take(answer: Answer, piece: dict[str, Any]) -> None:
    """Add a whole answer, or one event of a stream."""
    answer.usage = piece.get("usage") or answer.usage
    for choice in piece["choices"]:
        message = choice.get("message") or choice.get("delta") or choice
        if choice["index"] == 0:
            answer.text += message.get("content") or message.get("text") or ""
        if choice.get("prompt_token_ids"):
            answer.prompts.append(choice["prompt_token_ids"])
    if piece.get("prompt_token_ids"):
        answer.prompts.append(piece["prompt_token_ids"])


async def _in_turn(driver: Driver, renderer: Renderer, options: Options) -> list[Row]:
    """One request after another, a line of the table for each."""
    rows: list[Row] = []
    print(COLUMNS)
    for chat in chats(options.seed, options.requests, options.name, renderer):
        row, answer = await driver.send(chat.ask(options.max_tokens))
        chat.answers.append(answer.text)
        rows.append(row)
        print(_line(len(rows), row, options.workers.index(row.worker) + 1))
    return rows


async def _together(driver: Driver, renderer: Renderer, options: Options) -> Counts:
    """Chats with other texts, all at the same time; what the gateway counted."""
    by_chat: dict[int, tuple[Chat, int]] = {}
    for chat in chats(
        options.seed + 1, options.requests, options.name, renderer, odd=False
    ):
        by_chat[id(chat)] = chat, by_chat.get(id(chat), (chat, 0))[1] + 1

    async def hold(chat: Chat, turns: int) -> None:
        for _ in range(turns):
            ask = chat.ask(options.max_tokens)
            answer = await driver.ask(ask, msgspec.json.encode(ask.body))
            chat.answers.append(answer.text)

    before = await driver.counts()
    await asyncio.gather(*(hold(chat, turns) for chat, turns in by_chat.values()))
    grown = await driver.counts()
    grown.subtract(before)
    return grown


def _line(number: int, row: Row, worker: int) -> str:
    ids = {None: "", True: "equal", False: "DIFFER"}[row.ids]
    numbers = (row.rendered, row.prompt, row.explained, row.predicted, row.delivered)
    widths = (8, 6, 9, 9, 9)
    cells = [
        f"{'-' if n is None else n:>{width}}"
        for n, width in zip(numbers, widths, strict=True)
    ]
    mark = " *" if row.error else ""
    mark += f" not rendered: {row.not_rendered}" if row.not_rendered else ""
    head = f"{number:3}  {row.form:8} {row.turn + 1:4}  {worker:6}"
    return f"{head}  {'  '.join(cells)}  {ids}{mark}"


def _summary(rows: Sequence[Row]) -> str:
    told = [row for row in rows if row.predicted is not None]
    shown = [row for row in rows if row.ids is not None]
    return "\n".join(
        (
            f"{len(rows)} requests, {len(told)} with cached tokens reported",
            f"  predicted {sum(row.predicted or 0 for row in told)}, "
            f"delivered {sum(row.delivered or 0 for row in told)} hit tokens, "
            f"sum of differences {sum(row.error for row in told)} "
            f"in {sum(row.error > 0 for row in told)} requests (*)",
            "  prompt tokens rendered as reported: "
            f"{sum(row.rendered == row.prompt for row in told)} of {len(told)}",
            f"  ids equal: {sum(row.ids is True for row in shown)} of {len(shown)}",
        )
    )


def _total(grown: Counts, name: str) -> int:
    return sum(n for (counter, _), n in grown.items() if counter == name)


async def _drive(url: str, renderer: Renderer, options: Options) -> None:
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers=JSON) as client:
        driver = Driver(client, url, renderer)
        rows = await _in_turn(driver, renderer, options)
        print("\n" + _summary(rows))
        grown = await _together(driver, renderer, options)
    print(
        f"\n{options.requests} requests of other chats, all at the same time\n"
        f"  predicted {_total(grown, 'predicted_hit_tokens')}, "
        f"delivered {_total(grown, 'delivered_hit_tokens')} hit tokens, "
        f"sum of differences {_total(grown, 'prediction_error_tokens')}"
    )


def run(argv: Sequence[str]) -> None:
    """Start a gateway before running workers; print a table and a summary."""
    parser = argparse.ArgumentParser(prog="python -m bench real", description=__doc__)
    parser.add_argument("--workers", required=True, metavar="URL,URL")
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument("--name", help="as served; default: the directory's name")
    parser.add_argument("--requests", type=int, default=50, metavar="N")
    parser.add_argument("--max-tokens", type=int, default=12, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    arguments = parser.parse_args(argv)
    arguments.name = arguments.name or Path(arguments.model).name
    arguments.workers = arguments.workers.split(",")
    options = msgspec.convert(vars(arguments), Options)
    serve = ("gateway", "serve", "--workers", ",".join(options.workers))
    listen = ("--model", options.model, "--host", "127.0.0.1", "--port", "0")
    with running(*serve, *listen) as (_, url):
        asyncio.run(_drive(url, Renderer.load(options.model), options))
