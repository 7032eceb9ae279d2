"""Published clients and load generators against a gateway before simulated workers.

AIPerf and guidellm are installed from PyPI, each into a virtual environment of its own;
`vllm bench serve` runs where `--vllm` names its program, the `openai` client here. What
they print is printed, then what the gateway counted. The exit status is 1 where one
failed, or where the gateway counted anything but answers.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench._environments import DIRECTORY, NotInstalled, Requirements, python_of
from bench._processes import running
from simworker.model import demo_model_dir

MODEL = "demo"
REQUESTS, CLIENTS, PROMPT, OUTPUT = 20, 4, 200, 20
PATIENCE_S = 600.0
ATTEMPT = re.compile(r'^kv_gateway_attempts_total\{.*outcome="(\w+)".*\} (\S+)$', re.M)
SCRIPT = Path(__file__).with_name("_openai_client.py")


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One of them: `words` after the program of its environment, or of `program`."""

    name: str
    words: Sequence[str]
    binary: str = ""
    requirements: Requirements | None = None
    program: Path | None = None
    variables: Mapping[str, str] = {}


class Failed(Exception):
    """It did not come to its end: why."""


def tools(url: str, model: Path, results: Path, vllm: Path | None) -> list[Tool]:
    """All of them, with a small workload each."""
    offline = {"HF_HUB_OFFLINE": "1"}
    # AIPerf takes a directory for a tokenizer only after it has asked the hub for it.
    no_hub = {"HF_ENDPOINT": "http://127.0.0.1:1"}
    slow = {"AIPERF_SERVICE_REGISTRATION_TIMEOUT": "240"}
    return [
        Tool(name="openai", words=(str(SCRIPT), url, MODEL),
             program=Path(sys.executable)),
        Tool(name="AIPerf", binary="aiperf", variables=no_hub | slow,
             requirements=Requirements("aiperf", ("aiperf==0.13.0",)),
             words=("profile", "--model", MODEL, "--url", url, "--endpoint-type",
                    "chat", "--streaming", "--tokenizer", str(model),
                    "--synthetic-input-tokens-mean", str(PROMPT),
                    "--output-tokens-mean", str(OUTPUT), "--request-count",
                    str(REQUESTS), "--concurrency", str(CLIENTS), "--ui-type", "none",
                    "--artifact-dir", str(results))),
        Tool(name="guidellm", binary="guidellm", variables=offline,
             requirements=Requirements("guidellm", ("guidellm==0.8.1",)),
             words=("run", "--backend", f"kind=openai_http,target={url},model={MODEL}",
                    "--profile", f"kind=concurrent,streams={CLIENTS}",
                    "--constraint", f"kind=max_requests,count={REQUESTS}",
                    "--tokenizer", f"kind=huggingface_auto,model={model}", "--data",
                    f"kind=synthetic_text,prompt_tokens={PROMPT},"
                    f"output_tokens={OUTPUT}", "--disable-progress")),
        Tool(name="vllm bench serve", program=vllm, variables=offline,
             words=("bench", "serve", "--backend", "openai-chat", "--base-url", url,
                    "--endpoint", "/v1/chat/completions", "--model", MODEL,
                    "--tokenizer", str(model), "--dataset-name", "random",
                    "--random-input-len", str(PROMPT), "--random-output-len",
                    str(OUTPUT), "--num-prompts", str(REQUESTS), "--max-concurrency",
                    str(CLIENTS))),
    ]  # fmt: skip


def run(words: Sequence[str]) -> None:
    """Run them one after the other; SystemExit(1) where one failed."""
    args = _arguments(words)
    failures = 0
    with contextlib.ExitStack() as stack:
        url = _gateway(stack, args.workers)
        results = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for tool in tools(url, demo_model_dir(), results, args.vllm):
            if args.only not in tool.name:
                continue
            print(f"== {tool.name}", flush=True)
            before = attempts(url)
            try:
                print(said(tool, args.environments, results), flush=True)
            except (NotInstalled, Failed) as error:
                failures += 1
                print(f"not run: {error}", flush=True)
            counted = {
                outcome: count - before.get(outcome, 0)
                for outcome, count in attempts(url).items()
            }
            print("the gateway counted:", counted, "\n", flush=True)
            failures += any(counted[one] for one in counted if one != "answered")
    if failures:
        raise SystemExit(1)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench tools", description=__doc__)
    add = parser.add_argument
    add("--only", default="", metavar="TEXT", help="those so named")
    add("--workers", type=int, default=2, metavar="N", help="(default: 2)")
    add("--vllm", type=Path, metavar="PROGRAM", help="vLLM's program, if there is one")
    add("--environments", type=Path, default=DIRECTORY, metavar="DIR",
        help=f"where they are installed (default: {DIRECTORY})")  # fmt: skip
    return parser.parse_args(words)


def _gateway(stack: contextlib.ExitStack, workers: int) -> str:
    """The URL of a gateway before so many simulated workers."""
    worker = ("gateway", "sim-worker", "--port", "0", "--served-model-name", MODEL)
    urls = [
        stack.enter_context(running(*worker, quiet=True))[1] for _ in range(workers)
    ]
    return stack.enter_context(
        running("gateway", "--workers", ",".join(urls), "--model",
                str(demo_model_dir()), "--host", "127.0.0.1", "--port", "0",
                "--log-level", "error")
    )[1]  # fmt: skip


def said(tool: Tool, environments: Path, results: Path) -> str:
    """What it printed, run to its end. Raises NotInstalled, Failed."""
    program = tool.program
    if tool.requirements is not None:
        python = python_of(environments, tool.requirements)
        program = python.with_name(tool.binary)
    if program is None:
        raise NotInstalled(f"--vllm does not name a program for {tool.name}")
    try:
        done = subprocess.run(
            [str(program.absolute()), *tool.words], cwd=results, text=True,
            capture_output=True, timeout=PATIENCE_S, check=False,
            env=os.environ | dict(tool.variables),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    if done.returncode:
        raise Failed(f"status {done.returncode}\n{done.stdout}\n{done.stderr}"[-3000:])
    return done.stdout.strip()


def attempts(url: str) -> dict[str, int]:
    """What became of the requests that a gateway sent to workers, by outcome."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        page = answer.read().decode()
    counts: dict[str, int] = {}
    for outcome, count in ATTEMPT.findall(page):
        counts[outcome] = counts.get(outcome, 0) + round(float(count))
    return counts
