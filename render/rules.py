"""What differs between the engines besides what they hand a template."""

import msgspec

from render.fields import EFFORTS


class AnswerRules(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's ways; each profile holds its own.

    `id_digits` is the length of a new request id, `always_numbered` whether a single
    completion's id ends in its index too. `unsaid_reasoning` is `reasoning_ended` where
    the prompt does not say. `tools_need_parser` is whether tools are refused without a
    tool-call parser. `ids_field` is where a chat body may bring its own token ids.
    `keeps_first` is whether a prompt that is cut keeps its first tokens, not its last;
    `sets_tokenizing` whether a body may say so at all, or set the special tokens.
    `efforts` are the levels of reasoning that are taken, none: any, numbers too.
    `strict_messages` is whether the types of parts and of calls are checked.
    `parses_harmony` is whether answers of gpt-oss are parsed without a parser that is
    named, `always_parsed` whether that is so for this model: its reasoning counts as
    over. `chat_fields`, `completion_fields` are what a body may have, None: anything.
    """

    ids_field: tuple[str, ...]

    id_digits: int = 16
    always_numbered: bool = False
    unsaid_reasoning: bool | None = False
    tools_need_parser: bool = False
    keeps_first: bool = False
    sets_tokenizing: bool = True
    efforts: tuple[str, ...] = EFFORTS
    strict_messages: bool = False
    parses_harmony: bool = False
    always_parsed: bool = False
    chat_fields: frozenset[str] | None = None
    completion_fields: frozenset[str] | None = None
