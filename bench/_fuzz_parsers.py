"""Parsers of answers under what no model would write: each format, in any pieces.

An input is a line with the format's name, and an answer. What comes of it whole, id by
id and in any other pieces must be equal; where no call is found, every letter of it
comes out. Its cost, repeated, must not grow with its length.
"""

import random
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import msgspec
from canitoolcall.fixtures import load_fixtures
from tokenizers import Tokenizer

from bench._fuzz_inputs import mutated
from render.derender import joined
from render.derender_choice import Asked, Choice
from render.derender_prompt import Prompt
from render.detokenizer import Vocabulary
from render.parsers.call_formats import CALL_FORMATS
from render.parsers.events import Call, Event, Text
from render.parsers.formats import WHOLE, Format, find_format
from render.parsers.marks import Marks
from render.parsers.reasoning_formats import REASONING_FORMATS
from tests.render.models import byte_level
from tests.render.parsers.answers import WEATHER
from tests.render.parsers.written import CALLS

LONGEST = 1_500  # bytes of an answer
TOGETHER = (
    ("qwen3", "hermes"), ("qwen3", "qwen3_coder"), ("deepseek_v3", "deepseek_v3"),
    ("deepseek_v3", "deepseek_v32"), ("glm45", "glm45"), ("kimi_k2", "kimi_k2"),
    ("mistral", "mistral"), ("minimax_m2", "minimax_m2"), ("gemma4", "gemma4"),
    ("hy_v3", "hy_v3"), ("granite", "granite"), ("cohere_command3", "cohere_command3"),
)  # fmt: skip
PAIRS: dict[bytes, tuple[str | None, str | None]] = {
    f"{reasoning} {tools}".encode(): (reasoning, tools)
    for reasoning, tools in (
        *((None, name) for name in sorted({*CALL_FORMATS, *WHOLE})),
        *((name, None) for name in sorted(REASONING_FORMATS)),
        *TOGETHER,
    )
}
"""Every format there is, alone, and those that models have together."""
WORDS = (
    *"\0 \n\"'\\{}[]():,=></é🚢", "null", "-1e999", "get_weather", "city", '"city"',
    '{"name": "get_weather", "arguments": {}}', "get_weather(city=1)", "functions.",
    " to=functions.get_weather", "```json\n", "```", "<![CDATA[", "]]>", "&amp;",
    "call:get_weather{", "assistant", "name=", 'string="true"', "\\u00e9", "\\ud83d",
)  # fmt: skip
STOPS = ((), (), ("Paris",), ("\n\n", "}"), ("</",))
FAMILIES = {
    "deepseek": ("deepseek_v3 deepseek_v3", "deepseek_v3 deepseek_v32"),
    "gemma4": ("gemma4 gemma4",),
    "glm": ("glm45 glm45",),
    "gpt-oss": ("None gpt-oss",),
    "kimi": ("kimi_k2 kimi_k2", "None kimi_k3"),
    "llama": ("None llama3_json", "None pythonic"),
    "mistral": ("mistral mistral",),
    "qwen3-hermes": ("qwen3 hermes",),
    "qwen3-xml": ("qwen3 qwen3_coder",),
}


class Way(msgspec.Struct, frozen=True):
    """One format with a tokenizer; in one of its two, delimiters are tokens."""

    name: str
    format: Format
    tokenizer: Tokenizer
    vocabulary: Vocabulary
    marks: Marks

    def ids(self, text: str) -> list[int]:
        """A text's ids."""
        (encoded,) = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return encoded.ids

    def choice(self, asked: Asked, prompt: str | None = None) -> Choice:
        """A choice that follows a prompt."""
        ids = None if prompt is None else self.ids(prompt)
        return Choice(self.vocabulary, self.format, self.marks, asked, Prompt(ids))


def read(data: bytes) -> tuple[Way, bytes, int]:
    """An input's format and answer, and a number by which the rest is chosen."""
    name, _, answer = data.partition(b"\n")
    if name not in PAIRS:
        name, answer = [*PAIRS][zlib.crc32(name) % len(PAIRS)], data
    number = zlib.crc32(data)
    return _way(name, bool(number & 1)), answer, number >> 1


@cache
def _way(name: bytes, tokens: bool) -> Way:
    format = find_format(*PAIRS[name])
    assert format is not None
    specials = [*dict.fromkeys(format.delimiters)] if tokens else None
    tokenizer = byte_level(specials=[*specials] if specials else None)
    vocabulary = Vocabulary(tokenizer)
    marks = format.marks(vocabulary.added_ids)
    shown = f"{name.decode()}, {'tokens' if tokens else 'letters'}"
    return Way(shown, format, tokenizer, vocabulary, marks)


def seeds() -> list[bytes]:
    """A call in the words of each format, broken ones, and what models have written."""
    found = [f"{name}\n".encode() for name in map(bytes.decode, PAIRS)]
    for name, (_, tools) in PAIRS.items():
        if tools in CALLS:
            text = f"so {CALLS[tools]} and\n{CALLS[tools]}"
            found.append(name + b"\n" + text.encode())
    for fixture in load_fixtures():
        for pair in FAMILIES.get(fixture.family, ()):
            answer = f"{pair}\n{fixture.raw_output}".encode()
            found += [answer] * (len(answer) <= LONGEST)
    return found


def broken(rng: random.Random, seed: bytes, other: bytes) -> bytes:
    """An input with its format's own delimiters, and what is within calls, anywhere."""
    name, newline, answer = seed.partition(b"\n")
    if name not in PAIRS or rng.random() < 0.1:
        return mutated(rng, seed, other)
    if rng.random() < 0.1:
        name = rng.choice([*PAIRS])
    words = [*_way(name, True).format.delimiters, *WORDS]
    for _ in range(rng.choice((0, 1, 1, 3, 8))):
        at = rng.randrange(len(answer) + 1)
        end = at + rng.choice((0, 0, 1, 5, 40))
        answer = answer[:at] + rng.choice(words).encode() + answer[end:]
    if rng.random() < 0.7:
        answer = mutated(rng, answer, other)
    return name + newline + answer


def parsed(data: bytes) -> None:
    """The same in any pieces, and nothing lost or invented."""
    way, answer, number = read(data)
    ids = way.ids(answer[:LONGEST].decode(errors="replace"))
    text = way.tokenizer.decode(ids, skip_special_tokens=False)  # as normalised
    asked = _asked(number)
    prompts = (None, "", *way.format.delimiters[:3])
    prompt = prompts[(number >> 8) % len(prompts)]
    rng = random.Random(number)
    whole = _result(way.choice(asked, prompt), [ids])
    for pieces in ([[one] for one in ids], _cut(rng, ids)):
        assert _result(way.choice(asked, prompt), pieces) == whole, f"{way.name}: cuts"
    if asked.stops or asked.forced or any(isinstance(one, Call) for one in whole[0]):
        return  # what is cut, kept to the end, or in a call's arguments
    said = "".join(event.text for event in whole[0] if isinstance(event, Text))
    assert _is_within("".join(said.split()), text), f"{way.name}: invents"
    if way.format.whole is None:
        assert _is_within(_without(_markup(way.format), text), said), (
            f"{way.name}: loses"
        )


def _markup(format: Format) -> tuple[str, ...]:
    label = format.reasoning.label if format.reasoning is not None else ""
    return (*format.delimiters, *([label] if label else []))


def _asked(number: int) -> Asked:
    return Asked(
        stops=STOPS[(number >> 12) % len(STOPS)],
        parsed=True,
        calls=bool(number >> 16 & 7),
        forced=not number >> 20 & 7,
        tools=[WEATHER],
        variables={"enable_thinking": False} if number >> 24 & 1 else {},
    )


def _cut(rng: random.Random, ids: Sequence[int]) -> Iterator[Sequence[int]]:
    place = 0
    while place < len(ids):
        size = rng.choice((1, 2, 3, 7, 40, 300))
        yield ids[place : place + size]
        place += size


def _result(
    choice: Choice, pieces: Iterable[Sequence[int]]
) -> tuple[list[Event], str | None, int | str | None]:
    events = [event for piece in pieces for event in choice.feed(piece)]
    ending = choice.end("stop", None)
    events += ending.events
    return joined(events), ending.finish_reason, ending.stop_reason


def _without(delimiters: Iterable[str], text: str) -> str:
    """The letters of a text that are no delimiter's, and no space."""
    longest_first = sorted(delimiters, key=len, reverse=True)
    return re.sub("|".join([*map(re.escape, longest_first), r"\s"]), "", text)


def _is_within(less: str, more: str) -> bool:
    """Whether all letters of one text are in another, in their order."""
    rest = iter(more)
    return all(letter in rest for letter in less)


class Growth:
    """What an id costs in an answer that repeats itself, and in one four times as long.

    An input is a head, a zero byte, and what is repeated after it.
    """

    IDS = 1_000
    TIMES = 4
    MOST = 2.0
    """Times as much an id may cost in the longer answer."""
    NOISE_S = 5e-6
    SHOWN = 3

    def __init__(self) -> None:
        self._worst: dict[str, tuple[float, bytes]] = {}

    def __call__(self, data: bytes) -> None:
        """Raises where the longer answer costs more for each id."""
        way, ids = self._ids(data, self.IDS * self.TIMES)
        if not ids:
            return
        longer = cost(way, ids)
        if longer > self._worst.get(way.name, (0.0, b""))[0]:
            self._worst[way.name] = (longer, data)
        if longer < self.NOISE_S:
            return
        for _ in range(4):  # the least of several: other processes disturb
            short = cost(way, ids[: self.IDS])
            if longer <= self.MOST * short + self.NOISE_S:
                return
            longer = min(longer, cost(way, ids))
        raise AssertionError(f"{way.name}: grows")

    def _ids(self, data: bytes, count: int) -> tuple[Way, list[int]]:
        way, answer, number = read(data)
        head, zero, unit = answer[:LONGEST].partition(b"\0")
        if not zero:
            place = number % (len(answer) + 1)
            head, unit = answer[:place], answer[place : place + 1 + number % 40]
        begun, repeated = (
            way.ids(part.decode(errors="replace")) for part in (head, unit)
        )
        if not repeated:
            return way, []
        times = 1 + count // len(repeated)
        return way, (begun[: count // 4] + repeated * times)[:count]

    def told(self) -> list[str]:
        """The worst inputs, in answers that are longer still."""
        lines = []
        worst = sorted(self._worst.items(), key=lambda item: -item[1][0])
        for name, (_, data) in worst[: self.SHOWN]:
            count = 16 * self.IDS
            way, ids = self._ids(data, count)
            short = min(cost(way, ids[: count // 4]) for _ in range(3))
            longer = min(cost(way, ids) for _ in range(3))
            lines.append(
                f"worst: {1e6 * short:.1f} us for each of {count // 4:,} ids, "
                f"{1e6 * longer:.1f} us of {count:,} ({name}): {data[:120]!r}"
            )
        return lines


def cost(way: Way, ids: Sequence[int]) -> float:
    """Seconds of CPU for each id of an answer that comes id by id."""
    begun = time.process_time()
    choice = way.choice(
        Asked(stops=("\n\nUser:",), parsed=True, calls=True, tools=[WEATHER])
    )
    for one in ids:
        choice.feed((one,))
    choice.end("stop", None)
    return (time.process_time() - begun) / len(ids)
