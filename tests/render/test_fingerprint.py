"""Fingerprints compared: what is proven, and the word for what is not."""

import copy
import hashlib
import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from render.fingerprint import (
    Difference,
    Fingerprint,
    Reason,
    difference,
    digest,
    sha256_json,
)

H = "0123456789abcdef" * 4
TOKENIZER: dict[str, Any] = {
    "class": "transformers.TokenizersBackend",
    "vocab_size": 151669,
    "vocab_sha256": H,
    "special_tokens_sha256": H,
    "added_tokens_sha256": H,
    "init_kwargs_sha256": H,
    "encoding": {"kind": "tokenizers", "sha256": H},
    "complete": True,
}
COMPARED: dict[str, Any] = {
    "version": 2,
    "model_type": "qwen3",
    "extension": "ServingExtension",
    "extension_render_version": 1,
    "use_harmony": False,
    "custom_tokenizer": None,
    "input_processor": "default",
    "templates": {"server": None, "processor": H, "tokenizer": H},
    "tokenizer": TOKENIZER,
}
HARMONY: dict[str, Any] = {
    "version": 2,
    "model_type": "gpt_oss",
    "extension": "ServingExtension",
    "extension_render_version": 1,
    "use_harmony": True,
    "harmony": {
        "encoding": "HARMONY_GPT_OSS",
        "package": "openai-harmony",
        "version": "0.0.8",
    },
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda part: st.lists(part) | st.dictionaries(st.text(), part),
    max_leaves=20,
)


def fingerprint(compared: dict[str, Any]) -> Fingerprint:
    """With the digest that belongs to the fields."""
    return Fingerprint(digest=digest(compared), compared=compared)


def changed(field: str, value: Any, compared: dict[str, Any] = COMPARED) -> Any:
    """As another renderer publishes it that has one other field; `...` drops it."""
    other = copy.deepcopy(compared)
    *within, name = field.split(".")
    part = other
    for step in within:
        part = part[step]
    if value is ...:
        del part[name]
    else:
        part[name] = value
    return fingerprint(other).published()


def reason(theirs: object, ours: dict[str, Any] = COMPARED) -> str | None:
    """The word for how it differs from ours."""
    found = difference(fingerprint(ours), theirs)
    return found.reason if found is not None else None


@pytest.mark.parametrize("compared", [COMPARED, HARMONY])
def test_equal(compared: dict[str, Any]) -> None:
    """The same fields and digest prove it, whatever is told along."""
    theirs = fingerprint(compared).published() | {"info": {"tool_parser": "x"}, "y": 1}
    assert difference(fingerprint(compared), json.loads(json.dumps(theirs))) is None


def test_the_digest_is_of_the_json_as_python_writes_it() -> None:
    """Sorted keys, spaces, no escapes; None has none."""
    text = '{"a": [1, "é", null, true], "b": 1.5}'
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert digest({"b": 1.5, "a": [1, "é", None, True]}) == expected
    assert sha256_json(None) is None
    assert sha256_json("") == hashlib.sha256(b'""').hexdigest()


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("model_type", "qwen2", "model_type_differs"),
        ("model_type", None, "model_type_differs"),
        ("extension", "OwnExtension", "own_processor"),
        ("extension_render_version", 2, "own_processor"),
        ("input_processor", "Qwen2VLInputProcessor", "own_processor"),
        ("use_harmony", True, "own_processor"),
        ("templates.server", "f" * 64, "template_differs"),
        ("templates.processor", None, "template_differs"),
        ("templates.tokenizer", "f" * 64, "template_differs"),
        ("templates.system", "f" * 64, "template_differs"),
        ("templates", None, "template_differs"),
        ("custom_tokenizer", "deepseek_v32", "tokenizer_differs"),
        ("tokenizer", "x", "tokenizer_differs"),
        ("tokenizer.vocab_size", 151670, "tokenizer_differs"),
        ("tokenizer.vocab_sha256", "f" * 64, "tokenizer_differs"),
        ("tokenizer.vocab_sha256", ..., "tokenizer_differs"),
        ("tokenizer.added_tokens_sha256", "f" * 64, "tokenizer_differs"),
        ("tokenizer.init_kwargs_sha256", "f" * 64, "library_differs"),
        ("tokenizer.encoding.kind", "tiktoken", "tokenizer_differs"),
        ("tokenizer.encoding.ranks_sha256", "f" * 64, "tokenizer_differs"),
        ("tokenizer.something_new", 1, "tokenizer_differs"),
        ("tokenizer.complete", False, "incomplete"),
        ("tokenizer.complete", 1, "incomplete"),
        ("tokenizer.encoding", None, "incomplete"),
        ("tokenizer.encoding", ..., "incomplete"),
        ("tokenizer.class", "transformers.PreTrainedTokenizerFast", "library_differs"),
        ("tokenizer.special_tokens_sha256", "f" * 64, "library_differs"),
        ("tokenizer.encoding.sha256", "f" * 64, "library_differs"),
        ("version", 3, "library_differs"),
        ("version", 2.0, "library_differs"),
        ("something_new", {"a": 1}, "library_differs"),
    ],
)  # fmt: skip
def test_one_field(field: str, value: Any, expected: str) -> None:
    """Each field has its word, and is named."""
    found = difference(fingerprint(COMPARED), changed(field, value))
    assert found is not None
    assert found.reason == expected
    if expected != "incomplete":
        assert field in found.detail


def test_releases_of_transformers() -> None:
    """Class, special tokens, options and serialisation: what changes with a release."""
    other = copy.deepcopy(COMPARED)
    other["tokenizer"] |= {
        "class": "transformers.tokenization_utils_fast.PreTrainedTokenizerFast",
        "special_tokens_sha256": "f" * 64,
        "init_kwargs_sha256": "f" * 64,
        "encoding": {"kind": "tokenizers", "sha256": "f" * 64},
    }
    found = difference(fingerprint(COMPARED), fingerprint(other).published())
    assert found is not None
    assert found.reason == "library_differs"
    assert "--proof digest-or-probe" in found.detail
    other["tokenizer"]["vocab_sha256"] = "f" * 64
    assert reason(fingerprint(other).published()) == "tokenizer_differs"


def test_the_weightiest_is_told() -> None:
    """What no probe could overrule comes first."""
    theirs: dict[str, Any] = changed("tokenizer.class", "x")["compared"]
    for field, value, expected in (
        ("templates.server", "f" * 64, "template_differs"),
        (
            "tokenizer",
            TOKENIZER | {"complete": False, "class": "x"},
            "template_differs",
        ),
        ("input_processor", "Own", "own_processor"),
        ("model_type", "llama", "model_type_differs"),
    ):
        published = changed(field, value, theirs)
        theirs = published["compared"]
        assert reason(published) == expected


def test_harmony() -> None:
    """Its release identifies it: another may render otherwise, none proves nothing."""
    assert reason(changed("harmony.version", "0.0.4", HARMONY), HARMONY) == (
        "library_differs"
    )
    assert reason(changed("harmony.package", "own", HARMONY), HARMONY) == (
        "own_processor"
    )
    without = changed("harmony.version", None, HARMONY)
    assert reason(without, without["compared"]) == "incomplete"
    assert reason(fingerprint(HARMONY).published()) == "model_type_differs"


def test_neither_side_is_identified() -> None:
    """Equal digests of tokenizers that are not fully identified prove nothing."""
    partly = changed("tokenizer", TOKENIZER | {"complete": False, "encoding": None})
    found = difference(fingerprint(partly["compared"]), partly)
    assert found is not None
    assert found.reason == "incomplete"
    assert "gateway" in found.detail


@pytest.mark.parametrize(
    ("given", "expected"), [(None, "incomplete"), ("f" * 64, "library_differs")]
)
def test_a_digest_that_does_not_belong(given: str | None, expected: str) -> None:
    """The fields are equal and the digest is not: nothing is proven."""
    theirs = fingerprint(COMPARED).published() | {"digest": given}
    assert reason(theirs) == expected


def test_a_digest_that_does_not_belong_to_its_fields() -> None:
    """Our digest over other fields: the fields decide."""
    theirs = changed("templates.server", H) | {"digest": digest(COMPARED)}
    assert reason(theirs) == "template_differs"


def test_no_fingerprint() -> None:
    """On either side, or one that cannot be read."""
    assert difference(None, fingerprint(COMPARED).published()) == Difference(
        "no_fingerprint", "this gateway has none of its own"
    )
    ours = digest(COMPARED)
    unreadable: list[object] = [
        None, [], "x", 1, {}, {"digest": ours}, {"digest": ours, "compared": None},
        {"digest": ours, "compared": []},
    ]  # fmt: skip
    for theirs in unreadable:
        assert reason(theirs) == "no_fingerprint"


def test_equal_but_unfit() -> None:
    """Where we do not do what transformers does, an equal digest proves nothing."""
    unfit = Difference("not_in_fingerprint", "otherwise")
    ours = msgspec.structs.replace(fingerprint(COMPARED), unfit=unfit)
    found = difference(ours, fingerprint(COMPARED).published())
    assert found == (
        "not_in_fingerprint",
        "otherwise; --proof digest-or-probe compares ids",
    )
    # Another release may do what we do: that is for probes to find out.
    other = difference(ours, changed("tokenizer.class", "x"))
    assert other is not None
    assert other.reason == "library_differs"


def test_what_a_log_line_bears() -> None:
    """A worker's text is cut, printable, on one line; only so many fields."""
    theirs = changed("model_type", "x\n\x1b[31m" + "y" * 10_000)
    found = difference(fingerprint(COMPARED), theirs)
    assert found is not None
    assert found.detail.isprintable()
    assert len(found.detail) < 200
    many = COMPARED | {f"new{i}" + "n" * 1000: 1 for i in range(1000)}
    found = difference(fingerprint(COMPARED), fingerprint(many).published())
    assert found is not None
    assert "996 more" in found.detail
    assert len(found.detail) < 800


@given(st.sampled_from([COMPARED, HARMONY]), JSON)
def test_whatever_is_published(ours: dict[str, Any], theirs: Any) -> None:
    """Any JSON gets a word, never an error."""
    words = get_args(Reason)
    for published in (
        theirs,
        {"compared": theirs},
        {"compared": {"tokenizer": theirs}},
    ):
        assert reason(published, ours) in words


@given(
    st.sampled_from(sorted([*COMPARED, *(f"tokenizer.{n}" for n in TOKENIZER)])), JSON
)
def test_any_other_value_differs(field: str, value: Any) -> None:
    """Proven is only what is equal in value and type, though 1 == True for Python."""
    theirs = changed(field, value)
    equal = json.dumps(theirs["compared"]) == json.dumps(COMPARED)
    assert (reason(theirs) is None) is equal


def test_deep_nesting() -> None:
    """Deeper than Python recurses."""
    deep: Any = {}
    for _ in range(100_000):
        deep = {"tokenizer": deep}
    assert reason({"digest": "x", "compared": deep}) is not None
    assert reason({"digest": "x", "compared": COMPARED | {"model_type": deep}}) == (
        "model_type_differs"
    )
