"""Render and encode one chat: ours against transformers' apply_chat_template."""

import argparse
import contextlib
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvindex.blocks import unpack_ids
from render import Renderer
from simworker.model import demo_model_dir

WORDS = ("the", "cache", "of", "a", "worker", "holds", "blocks", "prompts", "share")


def run(argv: Sequence[str]) -> None:
    """Print a table of median milliseconds for each, and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m bench render", description=__doc__)
    parser.add_argument("--model", type=Path, help="model directory (the demo's)")
    parser.add_argument("--rounds", type=int, default=20, help="of each (20)")
    options = parser.parse_args(argv)
    model = options.model or demo_model_dir()
    ways = {
        "transformers": _transformers(model),
        "tokenizers": _ours(model, "tokenizers", 0),
        "tokenizers, cached": _ours(model, "tokenizers", 64 << 20),
        "best encoder": _ours(model, "auto", 0),
        "best encoder, cached": _ours(model, "auto", 64 << 20),
    }
    print("A chat that grows by one turn each time; median ms, ratio to the first\n")
    print("tokens".rjust(8), *(way.rjust(22) for way in ways))
    for turns in (1, 20, 220):
        tokens, medians = _measured(ways, turns, options.rounds)
        first = medians["transformers"]
        cells = (
            f"{m * 1e3:.3f} ({first / m:.0f}x)".rjust(22) for m in medians.values()
        )
        print(f"{tokens:8}", *cells)


Messages = list[dict[str, str]]
Way = Callable[[Messages, bytes], list[int]]


def _measured(
    ways: dict[str, Way], turns: int, rounds: int
) -> tuple[int, dict[str, float]]:
    """Interleaved, so that what else runs on the machine hits all alike."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    ids: list[int] = []
    for number in range(rounds + 1):
        messages = _chat(turns, number)
        body = json.dumps({"messages": messages}).encode()
        answers = []
        for name, way in ways.items():
            start = time.perf_counter()
            ids = way(messages, body)
            seconds[name].append(time.perf_counter() - start)
            answers.append(ids)
        if any(answer != answers[0] for answer in answers):
            raise SystemExit("the ids differ")
    return len(ids), {
        name: statistics.median(times[1:]) for name, times in seconds.items()
    }


def _chat(turns: int, number: int) -> Messages:
    """`turns` messages of about 150 words, the last of them new in each round."""
    texts = [
        " ".join(
            WORDS[(turn * 7 + i * i) % len(WORDS)] + str(i % 9) for i in range(100)
        )
        for turn in range(turns)
    ]
    texts[-1] += f" round {number}"
    roles = ("user", "assistant")
    return [
        {"role": roles[turn % 2], "content": text} for turn, text in enumerate(texts)
    ]


def _ours(model: Path, encoder: str, cache_bytes: int) -> Way:
    renderer = Renderer.load(model, encoder=encoder, segment_cache_bytes=cache_bytes)

    def render(_: Messages, body: bytes) -> list[int]:
        return unpack_ids(renderer.render_chat(body).token_ids)

    return render


def _transformers(model: Path) -> Way:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(model)

    def render(messages: Messages, _: bytes) -> list[int]:
        ids: Any = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        if not isinstance(ids, list):
            raise SystemExit("transformers gave no ids")
        return list(map(int, ids))

    return render
