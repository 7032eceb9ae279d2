"""The fixtures of canitoolcall, by family: equal, or differing for a named reason.

Qwen3's own tokenizer is at hand, and its fixtures' ids are taken. Other families'
answers are encoded by a byte-level tokenizer whose added tokens are their markers.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pytest
from canitoolcall.checks import compare, expected_as_result
from canitoolcall.fixtures import Family, Fixture, load_families, load_fixtures
from canitoolcall.results import ParsedToolCall, ParseResult, Status

from render import Renderer
from render.derender import joined
from render.detokenizer import Vocabulary
from render.parsers.answer import AnswerParser
from render.parsers.events import Call, Text
from render.parsers.formats import Format
from render.parsers.marks import Marks
from render.parsers.values import Tools
from tests.render.models import byte_level
from tests.render.parsers.answers import format_of

FAMILIES = {
    "deepseek": 85,
    "gemma4": 48,
    "glm": 51,
    "gpt-oss": 51,
    "kimi": 49,
    "llama": 34,
    "mistral": 47,
    "qwen3-hermes": 50,
    "qwen3-xml": 54,
}
"""How many fixtures each has."""
HARMONY = {
    200002: "<|return|>",
    200003: "<|constrain|>",
    200005: "<|channel|>",
    200006: "<|start|>",
    200007: "<|end|>",
    200008: "<|message|>",
    200012: "<|call|>",
}
"""The ids of gpt-oss's markers."""
KIMI_K3 = {163587: "<|open|>", 163588: "<|close|>", 163589: "<|sep|>"}
"""Those of Kimi K3's."""
DIFFERENT = {
    "gpt-oss/llamacpp-builtin-python-recipient": "code for a tool of the engine's own "
    "is content, as nothing is lost",
}
"""Where the answer is another on purpose."""


def parsers_of(fixture: Fixture) -> tuple[str | None, str]:
    """The parsers that a user of the fixture's model configures."""
    model = fixture.models[0]
    if fixture.family == "deepseek":
        tails = {"V4.1": "41", "V4": "4", "V3.2": "32", "V3.1": "31"}
        found = next((tails[tail] for tail in tails if tail in model), "3")
        return "deepseek_v3", f"deepseek_v{found}"
    if fixture.family == "kimi":
        if "K3" in model:
            return "kimi_k3", "kimi_k3"
        return None if "Instruct" in model else "kimi_k2", "kimi_k2"
    if fixture.family == "llama":
        return None, "llama4_pythonic" if "Llama-4" in model else "llama3_json"
    if fixture.family.startswith("qwen3"):
        thinks = "Coder" not in model and "Instruct-2507" not in model
        tools = "hermes" if fixture.family == "qwen3-hermes" else "qwen3_coder"
        return "qwen3" if thinks else None, tools
    return {
        "gemma4": ("gemma4", "gemma4"),
        "glm": ("glm45", "glm47"),
        "gpt-oss": ("openai_gptoss", "openai"),
        "mistral": ("mistral", "mistral"),
    }[fixture.family]


class Runner:
    """Parses the fixtures of one family."""

    def __init__(self, family: Family, qwen3: Vocabulary) -> None:
        self.family = family
        self._qwen3 = qwen3
        self._tokenizer = byte_level(specials=[*family.markers])
        self._markers = Vocabulary(self._tokenizer)
        self.ways: Counter[str] = Counter()

    def ids(self, fixture: Fixture) -> tuple[Vocabulary, list[int]]:
        """The answer's ids, and the tokenizer they are of."""
        own = [*(fixture.output_token_ids or ())]
        written = self._qwen3.detokenizer(skip_special_tokens=False).feed(own)
        if self.family.slug.startswith("qwen3") and written == fixture.raw_output:
            self.ways["its own tokenizer"] += 1
            return self._qwen3, own
        self.ways["markers"] += 1
        return self._markers, self._encoded(fixture.raw_output, own)

    def _encoded(self, text: str, own: Sequence[int]) -> list[int]:
        """The ids of the markers' tokenizer.

        Some models' ids of markers are known: they tell which of them are letters.
        """
        known = HARMONY if self.family.slug == "gpt-oss" else KIMI_K3
        pieces = [text]
        if self.family.slug == "gpt-oss" or known.keys() & {*own}:
            pieces = [*_told_apart(text, _gaps(own, known))]
        encoded = self._tokenizer.encode_batch(pieces, add_special_tokens=False)
        return [one for piece in encoded for one in piece.ids]

    def parse(self, fixture: Fixture, size: int | None) -> ParseResult:
        """The answer parsed, so many ids at a time."""
        format = format_of(*parsers_of(fixture))
        vocabulary, ids = self.ids(fixture)
        marks = Marks(format.delimiters, vocabulary.added_ids)
        parser = self._parser(fixture, format, marks)
        detokenizer = vocabulary.detokenizer(
            marks=marks.by_id, skip_special_tokens=False
        )
        step = size or len(ids) or 1
        events = [
            event
            for place in range(0, len(ids), step)
            for event in parser.feed(detokenizer.feed(ids[place : place + step]))
        ]
        return result(joined([*events, *parser.end()]))

    def _parser(self, fixture: Fixture, format: Format, marks: Marks) -> AnswerParser:
        prompt = self._prompt(fixture)
        ids = self._tokenizer.encode(prompt, add_special_tokens=False).ids
        own = Marks(format.delimiters, self._markers.added_ids)
        tail = self._markers.detokenizer(marks=own.by_id, skip_special_tokens=False)
        asked = fixture.thinking
        return AnswerParser(
            format,
            marks,
            tools=Tools([*fixture.tools]),
            calls=True,
            prompt=own.whole(tail.feed(ids)),
            variables={} if asked is None else {"enable_thinking": asked},
        )

    def _prompt(self, fixture: Fixture) -> str:
        if fixture.generation_prompt is not None:
            return fixture.generation_prompt
        models = self.family.reference_models
        known = {model.repo: model.default_generation_prompt for model in models}
        return known.get(fixture.models[0]) or ""


def _gaps(own: Sequence[int], known: Mapping[int, str]) -> deque[tuple[bool, str]]:
    """Each marker among the ids, and whether others stand before it."""
    gaps: deque[tuple[bool, str]] = deque()
    others = False
    for one in own:
        if one in known:
            gaps.append((others, known[one]))
        others = one not in known
    return gaps


def _told_apart(text: str, gaps: deque[tuple[bool, str]]) -> Iterator[str]:
    """A text in pieces: a marker is whole, what only reads like one is not."""
    others = False
    for piece in re.split(r"(<\|[a-z]+\|>)", text):
        if gaps and gaps[0] == (others, piece):
            gaps.popleft()
            yield piece
            others = False
        elif piece:
            yield from piece.replace("<|", "<\0|").split("\0")
            others = True


def result(events: Iterable[Text | Call]) -> ParseResult:
    """Events as canitoolcall compares them."""
    said = {"reasoning": "", "content": ""}
    calls = []
    for event in events:
        if isinstance(event, Text):
            said[event.kind] += event.text
        else:
            calls.append(ParsedToolCall(event.name, event.arguments))
    return ParseResult(
        content=said["content"] or None,
        reasoning_content=said["reasoning"] or None,
        tool_calls=tuple(calls),
    )


def is_equal(fixture: Fixture, got: ParseResult) -> bool:
    """Whether it is what they expect, space around texts left out."""
    if fixture.expected is None:
        return not got.tool_calls
    return compare(expected_as_result(fixture.expected), got) is not Status.FAIL


@pytest.fixture(scope="module")
def qwen(vllm: Renderer) -> Vocabulary:
    """Qwen3's tokenizer."""
    return vllm.vocabulary


@pytest.mark.parametrize("slug", FAMILIES)
def test_family(slug: str, qwen: Vocabulary) -> None:
    """Equal but where a reason is named; one by one, in pieces, and at once."""
    runner = Runner(load_families()[slug], qwen)
    fixtures = [one for one in load_fixtures() if one.family == slug]
    assert len(fixtures) == FAMILIES[slug]
    different = set()
    for fixture in fixtures:
        got = runner.parse(fixture, None)
        for size in (1, 3):
            assert runner.parse(fixture, size) == got, fixture.id
        if not is_equal(fixture, got):
            different.add(fixture.id)
    assert different == {one for one in DIFFERENT if one.startswith(f"{slug}/")}
    assert len(different) <= 0.05 * len(fixtures)
