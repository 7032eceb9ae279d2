"""Chats rendered in this process: ours, transformers and plain tokenizers in turn.

CPU time of the process, all threads. *Cold* is a chat no text of which was seen before,
*follow-up* the same chat with an answer and a question more. *tokenizers* only encodes
a text that is there already.
"""

import contextlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from bench._texts import Messages, Texts, body
from kvindex.blocks import unpack_ids
from render import Renderer

SIZES = ((2_000, 40), (2_000, 222), (32_000, 40), (32_000, 222))
AIMS = {(32_000, 40): (30, 40), (32_000, 222): (18, 20)}
"""Tokens, messages: times faster than transformers, cold and in a follow-up turn."""
WARM_UP = 2
THEIRS, PLAIN, OURS = "transformers", "tokenizers", "ours"
Model = tuple[str, Path, str]
"""Name, directory and chat template."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """CPU seconds, medians, by way; cold and in a follow-up turn."""

    model: str
    tokens: int
    size: tuple[int, int]
    cold: dict[str, float]
    follow_up: dict[str, float]

    def ratios(self) -> tuple[float, float]:
        """How many times faster than transformers, cold and in a follow-up turn."""
        cold, later = self.cold, self.follow_up
        return cold[THEIRS] / cold[OURS], later[THEIRS] / later[OURS]


def of_directory(path: Path) -> Model:
    """A model directory with a template in its tokenizer_config.json."""
    config = json.loads((path / "tokenizer_config.json").read_text("utf-8"))
    return path.name, path, config["chat_template"]


def compare(models: Iterable[Model], rounds: int) -> None:
    """Measure and print the table; SystemExit where ids differ."""
    print(
        f"CPU ms of a chat, medians of {rounds} interleaved rounds; ids equal in each."
    )
    print("`x`: how many times faster than transformers.\n")
    print(
        _row("model", "tokens", "messages", THEIRS, PLAIN, "ours, cold", "x")
        + _row("ours, follow-up", "x", "aims", "met")[1:]
    )
    print("|---|" + "---:|" * 10)
    results = []
    for model in models:
        bench = _Bench(model)
        for size in SIZES:
            results.append(bench.measured(size, rounds))
            print(_line(results[-1]), flush=True)
    print()
    for size, aims in AIMS.items():
        _print_aim(size, aims, [r for r in results if r.size == size])


class _Bench:
    """One model, loaded by each of the three."""

    def __init__(self, model: Model) -> None:
        self._name, path, template = model
        self._renderer = Renderer.load(path, chat_template=template)
        self._plain = Tokenizer.from_file(str(path / "tokenizer.json"))
        self._theirs = _transformers(path, template)

    def measured(self, size: tuple[int, int], rounds: int) -> Result:
        """In turns, so that what else runs on the machine hits all alike."""
        texts = Texts(seed=sum(size))
        cold: dict[str, list[float]] = {THEIRS: [], PLAIN: [], OURS: []}
        later: dict[str, list[float]] = {THEIRS: [], PLAIN: [], OURS: []}
        tokens = 0
        for number in range(WARM_UP + rounds):
            messages = texts.chat(*size)
            tokens = self._once(messages, cold, number)
            self._once([*messages, *texts.turn()], later, number)
        return Result(
            model=self._name,
            tokens=tokens,
            size=size,
            cold={way: statistics.median(s[WARM_UP:]) for way, s in cold.items()},
            follow_up={way: statistics.median(s[WARM_UP:]) for way, s in later.items()},
        )

    def _once(
        self, messages: Messages, seconds: dict[str, list[float]], number: int
    ) -> int:
        """Each of the three on one chat, another one first each time."""
        raw = body(messages)
        text = self._renderer.chat_prompt(raw).text or ""
        ways: list[tuple[str, Callable[[], Any]]] = [
            (THEIRS, lambda: self._theirs(messages)),
            (PLAIN, lambda: self._plain.encode(text, add_special_tokens=False).ids),
            (OURS, lambda: self._renderer.render_chat(raw)),
        ]
        first = number % len(ways)
        answers = {}
        for name, way in ways[first:] + ways[:first]:
            # What the one before freed, malloc sorts at the next large allocation.
            json.loads(raw)
            begun = time.process_time()
            answers[name] = way()
            seconds[name].append(time.process_time() - begun)
        ids = unpack_ids(answers[OURS].token_ids)
        if not ids == answers[THEIRS] == answers[PLAIN]:
            raise SystemExit(
                f"{self._name}: the ids differ for {len(messages)} messages"
            )
        return len(ids)


def _transformers(path: Path, template: str) -> Callable[[Messages], list[int]]:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(path)

    def render(messages: Messages) -> list[int]:
        ids: Any = tokenizer.apply_chat_template(
            messages,
            chat_template=template,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
        return list(map(int, ids))

    return render


def _line(result: Result) -> str:
    aims = AIMS.get(result.size)
    ratios = result.ratios()
    met = ""
    if aims is not None:
        met = "/".join(
            "yes" if ratio >= aim else "no"
            for ratio, aim in zip(ratios, aims, strict=True)
        )
    return _row(
        result.model,
        f"{result.tokens:,}",
        str(result.size[1]),
        f"{1e3 * result.cold[THEIRS]:.2f}",
        f"{1e3 * result.cold[PLAIN]:.2f}",
        f"{1e3 * result.cold[OURS]:.2f}",
        f"{ratios[0]:.0f}",
        f"{1e3 * result.follow_up[OURS]:.2f}",
        f"{ratios[1]:.0f}",
        "/".join(map(str, aims)) if aims else "",
        met,
    )


def _print_aim(
    size: tuple[int, int], aims: tuple[int, int], results: Sequence[Result]
) -> None:
    """The aims at a size, and what was reached by the models, least and median."""
    if not results:
        return
    tokens, messages = size
    for kind, aim, ratios in zip(
        ("cold", "follow-up"),
        aims,
        zip(*(result.ratios() for result in results), strict=True),
        strict=True,
    ):
        print(
            f"- {tokens:,} tokens, {messages} messages, {kind}: aim {aim}x, reached "
            f"{min(ratios):.0f}x at least, {statistics.median(ratios):.0f}x median"
        )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
