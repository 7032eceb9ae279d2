"""A model directory of gpt-oss: its real vocabulary, without the weights.

tests/data/gpt_oss/o200k_base.xz holds the tokens in the order of their ids: first the
length of each in a byte, then their bytes.
"""

import json
import lzma
from datetime import datetime
from itertools import accumulate, pairwise
from pathlib import Path

from tokenizers import pre_tokenizers

DATA = Path(__file__).parent.parent / "data" / "gpt_oss"
DAY = datetime(2026, 11, 30, 12).timestamp()
"""The day on which the answers in vllm.json.gz were recorded."""
TOKENS = 199_998
LETTERS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
WORDS = (
    rf"{LETTERS}*{LOWER}+{SHORT}|{LETTERS}+{LOWER}*{SHORT}|\p{{N}}{{1,3}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = {
    199998: "<|startoftext|>",
    199999: "<|endoftext|>",
    **{n: f"<|reserved_{n}|>" for n in range(200000, 200018)},
    200002: "<|return|>",
    200003: "<|constrain|>",
    200005: "<|channel|>",
    200006: "<|start|>",
    200007: "<|end|>",
    200008: "<|message|>",
    200012: "<|call|>",
    200018: "<|endofprompt|>",
}


def save(path: Path, *, model_type: str = "gpt_oss") -> Path:
    """Write the directory: tokenizer.json and config.json."""
    path.mkdir(parents=True, exist_ok=True)
    config = {"model_type": model_type, "max_position_embeddings": 131072}
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer_config.json").write_text("{}")
    tokens = _tokens()
    special = [
        {
            "id": token_id,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token_id, content in SPECIAL.items()
    ]
    split = {"type": "Split", "pattern": {"Regex": WORDS}}
    words = {**split, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [words, {**level, "use_regex": False}],
        },
        "post_processor": None,
        "decoder": {**level, "use_regex": True},
        "model": {
            "type": "BPE",
            "ignore_merges": True,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": _merges(tokens),
        },
    }
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return path


def _tokens() -> list[str]:
    """Each token as byte-level vocabularies spell it."""
    data = lzma.decompress((DATA / "o200k_base.xz").read_bytes())
    ends = accumulate(data[:TOKENS], initial=TOKENS)
    spelled = data.decode("latin-1").translate(_alphabet())
    return [spelled[start:end] for start, end in pairwise(ends)]


def _alphabet() -> dict[int, str]:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + index) for index, byte in enumerate(others)
    }
    assert set(alphabet.values()) == set(pre_tokenizers.ByteLevel.alphabet())
    return alphabet


def _merges(tokens: list[str]) -> list[tuple[str, str]]:
    """All ways to put each token together of two others, as converters write them."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    merges = []
    for token in tokens:
        splits = ((token[:n], token[n:]) for n in range(1, len(token)))
        known = [pair for pair in splits if pair[0] in ranks and pair[1] in ranks]
        merges += sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return merges
