"""Tiny tokenizers of every kind that models have, with odd added tokens."""

from collections.abc import Callable, Mapping

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.models import BPE, Unigram, WordPiece
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordPieceTrainer

from tests.render.models import CORPUS, byte_level

TEXT = [*CORPUS, "<0x0A> the user said it's fine, don't worry 1234 e\u0301 世界 " * 3]
ADDED = [
    AddedToken("<|im_start|>", normalized=False, special=True),
    AddedToken("<|im_end|>", normalized=False, special=True),
    AddedToken("<left>", lstrip=True, normalized=False, special=True),
    AddedToken("<right>", rstrip=True, normalized=False, special=True),
    AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
    AddedToken("word", single_word=True, normalized=False),
    AddedToken("Kept", normalized=True),
    AddedToken("<|im_", normalized=False),
    AddedToken("\n\n", normalized=False),
    AddedToken("<|im_start|><|", normalized=False),
]


def _byte_level() -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.add_tokens(ADDED)
    return tokenizer


def _byte_fallback(scheme: str) -> Tokenizer:
    """Like Llama 2's: Metaspace, bytes for what the vocabulary lacks."""
    tokenizer = Tokenizer(BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        prepend_scheme=scheme, split=False
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = BpeTrainer(vocab_size=500, show_progress=False, special_tokens=specials)
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_tokens(ADDED)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def _unigram() -> Tokenizer:
    """Like T5's: NFKC, Metaspace, the likeliest pieces."""
    tokenizer = Tokenizer(Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace("  ", " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace()
    trainer = UnigramTrainer(
        vocab_size=300,
        show_progress=False,
        special_tokens=["<unk>", "</s>"],
        unk_token="<unk>",
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_tokens(ADDED)
    return tokenizer


def _word_piece() -> Tokenizer:
    """Like BERT's: lower case, no accents, words."""
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    specials = ["[UNK]", "[CLS]", "[SEP]"]
    trainer = WordPieceTrainer(
        vocab_size=300, show_progress=False, special_tokens=specials
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_tokens(ADDED)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(s, tokenizer.token_to_id(s)) for s in specials[1:]],
    )
    return tokenizer


KINDS: Mapping[str, Callable[[], Tokenizer]] = {
    "byte_level": _byte_level,
    "byte_fallback_first": lambda: _byte_fallback("first"),
    "byte_fallback_always": lambda: _byte_fallback("always"),
    "byte_fallback_never": lambda: _byte_fallback("never"),
    "unigram": _unigram,
    "word_piece": _word_piece,
}
