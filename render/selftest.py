"""Does another encoder give the same ids as the reference? A few milliseconds at load.

The probes are what encoders have been seen to differ in: Unicode normalisation and
combining marks, runs of spaces and digits, added tokens of all kinds next to all kinds
of text, long words and long texts. Not a proof; a broken or misread tokenizer fails.
"""

from collections.abc import Callable, Iterator, Sequence

from tokenizers import Tokenizer

from kvindex.blocks import pack_ids

TEXTS = (
    "",
    " ",
    "Hello, world! It's 2+2=4; isn't it? I'LL we've",
    "  leading\ttabs \n\n\n newlines \r\n and trailing   ",
    "a" + " " * 40 + "b" + "\n" * 17 + "c" + " \n" * 9 + "\t\t x",
    "0 12 345 6789 123456789012345678901234567890 1,234.56 1e-9 ٣٤٥ ½ Ⅷ",
    "Привет, мир! 世界こんにちは 안녕하세요 مرحبا שלום नमस्ते ไทย",
    "e\u0301 \u00e9 n\u0303 a\u0323\u0302 \u1e69 s\u0323\u0307 \ufb01 \u212b \ufdfa",
    "\u07f3\u07fd \u0345\u0301 \u0f71\u0f72 \u1100\u1161\u11a8 \ud55c \u3099\u309a",
    "🌍👩‍👩‍👧 🏳️‍🌈 👍🏽 \u200b\u200d\ufeff\u00a0\u2028\u3000 \U0001f1e9\U0001f1ea",
    "\x00\x01\x7f\x85 \ufffd \U0010ffff \ue000",
    'def f(x):\n    return {\'a\': [1, 2], "b": x**2}  # <tag attr="1">&amp;</tag>\n',
    "https://example.org/a/b?c=d&e=%20f#g user@example.org C:\\dir\\file",
    "camelCaseWord snake_case_word SCREAMING_CASE kebab-case x1y2z3",
    "<|im_start|>user\n<|im_end|> </s><s> [INST] <think> <|endoftext|",
    "aGVsbG8gd29ybGQgdGhpcyBpcyBiYXNlNjQ=" * 20,
    "word " * 300,
    "ab" * 3000,
    "." * 600 + "-" * 600 + "=" * 600,
)
AROUND = (("", ""), (" ", " "), ("a", "b"), ("\n", "\n\n"), ("é ", "1"), ("<", ">"))
SAMPLES = 400  # added tokens tried with each surrounding, of models that have thousands


def differing_probe(reference: Tokenizer, encode: Callable[[str], bytes]) -> str | None:
    """The first probe that `encode` gives other ids for than the reference, or None.

    Each is tried twice: the second time a cache may answer.
    """
    added = [token.content for token in reference.get_added_tokens_decoder().values()]
    probes = [*TEXTS, *_with_tokens(added), "\n".join(TEXTS)]
    encodings = reference.encode_batch_fast(probes, add_special_tokens=False)
    for probe, encoding in zip(probes, encodings, strict=True):
        ids = pack_ids(encoding.ids)
        if encode(probe) != ids or encode(probe) != ids:
            return probe
    return None


def _with_tokens(added: Sequence[str]) -> Iterator[str]:
    """Texts in which all added tokens occur, some of them in all surroundings."""
    step = max(1, len(added) // SAMPLES)
    sample = added[::step]
    for before, after in AROUND:
        yield "".join(before + token + after for token in sample)
    for start in range(0, len(added), 500):
        yield " x ".join(added[start : start + 500])
        yield "".join(added[start : start + 500])
