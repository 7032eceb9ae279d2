"""Small model directories for tests: tokenizers trained in milliseconds."""

import json
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

CORPUS = [
    "The quick brown fox jumps over the lazy dog. 0123456789 " * 3,
    "user assistant system tool hello world this is a message of some words",
    "Привет мир 世界 hallo Welt café naïve \n\n\t def f(x): return {'a': [1, 2]}",
]
CHATML = (
    "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor -%}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_level(*, specials: list[str | AddedToken] | None = None) -> Tokenizer:
    """A byte-level BPE tokenizer like Qwen's: NFC, ids for every byte, no BOS."""
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = BpeTrainer(
        vocab_size=420,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    added = specials or ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    tokenizer.add_special_tokens(added)
    return tokenizer


def metaspace(*, scheme: str = "first") -> Tokenizer:
    """A Metaspace BPE tokenizer like Llama 2's: a BOS before every text."""
    tokenizer = Tokenizer(BPE(unk_token="<unk>", byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    trainer = BpeTrainer(
        vocab_size=300, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"]
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def save(
    path: Path,
    tokenizer: Tokenizer,
    *,
    config: dict[str, object] | None = None,
    tokenizer_config: dict[str, object] | None = None,
    files: dict[str, str] | None = None,
) -> Path:
    """Write a model directory; `files` are further files by their names."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    if tokenizer_config is None:
        tokenizer_config = {"chat_template": CHATML}
    contents = {
        "config.json": json.dumps(config or {"model_type": "tiny"}),
        "tokenizer_config.json": json.dumps(tokenizer_config),
        **(files or {}),
    }
    for name, content in contents.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(content, encoding="utf-8")
    return path
