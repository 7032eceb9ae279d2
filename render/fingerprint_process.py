"""The child process that identifies a tokenizer, with transformers.

    python -m render.fingerprint_process MODEL_DIR TOKENIZER_DIR

prints one JSON object: `processor_template` and `tokenizer_template` (sha256 of each,
or null), `tokenizer` (its compared fields), the `libraries` it was done with, and
`differing_text`, for which transformers has other ids than tokenizer.json, if any. The
recipe is TensorRT-LLM's, which hashes what transformers made of the files. So it must
be loaded as that engine does (`LOADED_WITH`): `legacy` is one of the hashed options.

Transformers takes a second to import and 100 MB; no other process of ours loads it.
No code of a model is run, and nothing is fetched.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from kvindex.blocks import pack_ids
from render.fingerprint import sha256_json
from render.selftest import differing_probe

LOADED_WITH = {
    "legacy": False,
    "padding_side": "left",
    "truncation_side": "left",
    "use_fast": True,
}
INIT_KWARGS = (
    "add_prefix_space",
    "add_bos_token",
    "add_eos_token",
    "legacy",
    "split_special_tokens",
    "do_lower_case",
    "strip_accents",
    "tokenize_chinese_chars",
)
"""Of the options a tokenizer was made with, those that change its ids."""
TIKTOKEN = ("model", "tokenizer", "encoding", "_encoding", "tiktoken_model")
"""Where tokenizers written in Python keep their tiktoken encoding."""


def identity(model: str, tokenizer: str) -> dict[str, Any]:
    """What this process prints; raises what transformers raises."""
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(
        tokenizer, trust_remote_code=False, **LOADED_WITH
    )
    return {
        "processor_template": sha256_json(processor_template(model)),
        "tokenizer_template": sha256_json(getattr(loaded, "chat_template", None)),
        "tokenizer": tokenizer_fields(loaded),
        "libraries": {name: version(name) for name in ("transformers", "tokenizers")},
        "differing_text": differing_text(loaded, Path(tokenizer) / "tokenizer.json"),
    }


def differing_text(loaded: Any, file: Path) -> str | None:
    """A text whose ids are others than those of a tokenizer.json, or None.

    A class of transformers may build its tokenizer otherwise than the file says. One
    that is no fast tokenizer is not compared: it is never fully identified either.
    """
    backend = getattr(loaded, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        return None
    ours = Tokenizer.from_file(str(file))
    for tokenizer in (ours, backend):
        tokenizer.no_truncation()
        tokenizer.no_padding()

    def encode(text: str) -> bytes:
        return pack_ids(ours.encode(text, add_special_tokens=False).ids)

    found = differing_probe(backend, encode)
    if found is None and backend.encode("a b").ids != ours.encode("a b").ids:
        found = "a b"
    return found


def processor_template(model: str) -> object:
    """The template of what AutoProcessor makes of a model directory.

    Of a model for text only that is its tokenizer: the engine takes it for a processor.
    """
    from transformers import AutoProcessor

    load: Callable[..., Any] = AutoProcessor.from_pretrained
    try:
        processor = load(model, trust_remote_code=False)
    except Exception as error:  # whatever it is: then the engine has no processor
        print(f"no processor: {error}", file=sys.stderr)  # noqa: T201 - the parent's log
        return None
    return getattr(processor, "chat_template", None)


def tokenizer_fields(tokenizer: Any) -> dict[str, Any]:
    """The compared fields of a tokenizer of transformers; absent where it has none."""
    kind = type(tokenizer)
    fields: dict[str, Any] = {"class": f"{kind.__module__}.{kind.__qualname__}"}
    vocabulary = _vocabulary(tokenizer)
    if vocabulary is not None:
        fields["vocab_size"] = len(vocabulary)
        fields["vocab_sha256"] = sha256_json(sorted(vocabulary.items()))
    special = getattr(tokenizer, "special_tokens_map", None)
    fields["special_tokens_sha256"] = sha256_json(
        special if isinstance(special, dict) else None
    )
    added = getattr(tokenizer, "added_tokens_decoder", None)
    if isinstance(added, dict) and added:
        fields["added_tokens_sha256"] = sha256_json(sorted(map(_added, added.items())))
    options = getattr(tokenizer, "init_kwargs", None)
    if isinstance(options, dict):
        fields["init_kwargs_sha256"] = sha256_json(_hashed_options(options))
    fields["encoding"] = encoding = _encoding(tokenizer)
    fields["complete"] = encoding is not None
    return fields


def _vocabulary(tokenizer: Any) -> dict[str, int] | None:
    try:
        return dict(tokenizer.get_vocab())
    except (AttributeError, TypeError, ValueError):
        return None


def _added(entry: tuple[object, Any]) -> tuple[int, str, object]:
    """An added token by its id: how it matches is in its `repr`."""
    number, token = entry
    attributes = getattr(token, "__dict__", None)
    return int(str(number)), repr(token), attributes and str(attributes)


def _hashed_options(options: Mapping[str, object]) -> dict[str, object]:
    return {
        name: options[name]
        for name in INIT_KWARGS
        if name in options and isinstance(options[name], str | int | float | None)
    }


def _encoding(tokenizer: Any) -> dict[str, Any] | None:
    """All that turns text into ids; None where it cannot be told."""
    return _fast_encoding(tokenizer) or _tiktoken_encoding(tokenizer)


def _fast_encoding(tokenizer: Any) -> dict[str, Any] | None:
    try:
        serialized = json.loads(tokenizer.backend_tokenizer.to_str())
    except Exception:  # no such tokenizer, or one that cannot be written down
        return None
    # Left behind by whichever request was encoded last; no part of the tokenizer.
    serialized["truncation"] = serialized["padding"] = None
    return {"kind": "tokenizers", "sha256": sha256_json(serialized)}


def _tiktoken_encoding(tokenizer: Any) -> dict[str, Any] | None:
    for name in TIKTOKEN:
        encoding = getattr(tokenizer, name, None)
        ranks = getattr(encoding, "_mergeable_ranks", None)
        if isinstance(ranks, dict) and ranks:
            special = getattr(encoding, "_special_tokens", None) or {}
            pairs = sorted((bytes(token).hex(), rank) for token, rank in ranks.items())
            return {
                "kind": "tiktoken",
                "pattern_sha256": sha256_json(getattr(encoding, "_pat_str", None)),
                "ranks_sha256": sha256_json(pairs),
                "special_tokens_sha256": sha256_json(sorted(special.items())),
            }
    return None


def main() -> None:
    """Print the identity of the tokenizer that the arguments name."""
    answer = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no part of the answer
    told = json.dumps(identity(*sys.argv[1:3])).encode()
    with os.fdopen(answer, "wb") as out:
        out.write(told)


if __name__ == "__main__":
    main()
