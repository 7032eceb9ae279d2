"""Encoders against the reference: are the ids of hard texts and growing chats equal?

Each tokenizer is given as a directory with a tokenizer.json in it, by default the one
that comes with the simulated worker. Texts are made by hypothesis: combining marks,
added tokens whole and in part, runs of white space, high entropy, long ones. fastokens
and tokenizers, each behind its segment cache, are compared with plain tokenizers. The
exit status is 1 if any text differs. Nothing is fetched.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench._encoder_check import Report, check
from simworker.model import demo_model_dir

SHOWN = 5  # texts that differ, of each tokenizer
ROW = "{:<14} {:<22} {:>8} {:>11} {:>12} {:>8}"


def run(words: Sequence[str]) -> None:
    """Compare and print a table."""
    options = _parser().parse_args(words)
    print(ROW.format("tokenizer", "encoders", "texts", "tokens", "differences", "s"))
    wrong = 0
    with tempfile.TemporaryDirectory() as work:
        for path in options.directories or [demo_model_dir(Path(work) / "qwen3")]:
            report = check(_file(path), count=options.texts, start=options.seed)
            wrong += len(report.different)
            _show(report)
    if wrong:
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench encoder", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("directories", nargs="*", type=Path, metavar="TOKENIZER_DIR")
    parser.add_argument("--texts", type=int, default=10_000, help="at least so many")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def _file(path: Path) -> Path:
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        sys.exit(f"no tokenizer.json in {path}")
    return file


def _show(report: Report) -> None:
    print(
        ROW.format(
            report.name,
            ", ".join(report.encoders),
            report.texts,
            report.tokens,
            len(report.different),
            f"{report.seconds:.0f}",
        ),
        flush=True,
    )
    for text in report.different[:SHOWN]:
        print(f"    {text[:200]!r}")
