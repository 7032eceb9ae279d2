"""The few fields of a request body that routing needs, without decoding the rest.

It never raises on what a client sends: a field of the wrong type is None, and a body
that is not a JSON object has a `problem` and no fields. Nothing is validated here;
the worker decides what a request is worth.
"""

from typing import TypeVar

import msgspec

from gateway.request.json_fields import NOT_JSON, top_level

SMALL = 1024 * 1024
"""Bytes that msgspec skims in one go; above, it is done in slices.

Text takes it 0.5 ms, brackets within brackets 5 ms."""

FIELD_LIMIT = 64 * 1024
"""Bytes of a field that is read as one value, such as the name of the model."""

LONGEST_NUMBER = 32
"""Bytes of a number of answers; a longer one is none that a worker takes."""

SEVERAL_ANSWERS = "several_answers"
PROMPT_LOGPROBS = "prompt_logprobs"

NAME_LIMIT = 4096
"""Bytes of a field that names a session or a response."""

PROMPT_PARTS: tuple[tuple[str, ...], ...] = (
    ("tools",),
    ("system", "instructions"),
    ("query", "queries", "text_1", "data_1"),
    ("documents", "items", "text_2", "data_2"),
    (
        *("messages", "input", "prompt", "text", "texts", "inputs"),
        *("input_ids", "token_ids", "prompt_token_ids"),
    ),
)
"""The fields that a prompt is made of, whatever the endpoint, in the order in which
engines read them; of those that stand for the same, the first that is given."""

_T = TypeVar("_T", str, int)
_ABSENT = msgspec.Raw(b"")


class _Fields(msgspec.Struct):
    model: msgspec.Raw = _ABSENT
    stream: msgspec.Raw = _ABSENT
    messages: msgspec.Raw = _ABSENT
    prompt: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    system: msgspec.Raw = _ABSENT
    instructions: msgspec.Raw = _ABSENT
    query: msgspec.Raw = _ABSENT
    queries: msgspec.Raw = _ABSENT
    text_1: msgspec.Raw = _ABSENT
    data_1: msgspec.Raw = _ABSENT
    documents: msgspec.Raw = _ABSENT
    items: msgspec.Raw = _ABSENT
    text_2: msgspec.Raw = _ABSENT
    data_2: msgspec.Raw = _ABSENT
    text: msgspec.Raw = _ABSENT
    texts: msgspec.Raw = _ABSENT
    inputs: msgspec.Raw = _ABSENT
    input_ids: msgspec.Raw = _ABSENT
    token_ids: msgspec.Raw = _ABSENT
    prompt_token_ids: msgspec.Raw = _ABSENT
    max_tokens: msgspec.Raw = _ABSENT
    max_completion_tokens: msgspec.Raw = _ABSENT
    cache_salt: msgspec.Raw = _ABSENT
    extra_key: msgspec.Raw = _ABSENT
    lora_path: msgspec.Raw = _ABSENT
    lora_request: msgspec.Raw = _ABSENT
    n: msgspec.Raw = _ABSENT
    best_of: msgspec.Raw = _ABSENT
    use_beam_search: msgspec.Raw = _ABSENT
    prompt_logprobs: msgspec.Raw = _ABSENT
    echo: msgspec.Raw = _ABSENT
    logprobs: msgspec.Raw = _ABSENT
    user: msgspec.Raw = _ABSENT
    session_id: msgspec.Raw = _ABSENT
    conversation: msgspec.Raw = _ABSENT
    conversation_params: msgspec.Raw = _ABSENT
    previous_response_id: msgspec.Raw = _ABSENT


class _Named(msgspec.Struct):
    id: msgspec.Raw = _ABSENT
    conversation_id: msgspec.Raw = _ABSENT


class Peeked(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read of a body. `problem` says why not more, in a fixed word.

    Problems: ``empty``, ``not_json``, ``not_object``, ``too_deep``, ``too_complex``.
    `uncompared` says why an answer's cached tokens are not those of a plain look-up.
    `content` has what the prompt is made of (`PROMPT_PARTS`). `conversation` is the
    name of one, whichever field has it.
    """

    problem: str | None = None
    model: str | None = None
    stream: bool = False
    messages: msgspec.Raw | None = None
    prompt: msgspec.Raw | None = None
    input: msgspec.Raw | None = None
    content: tuple[msgspec.Raw, ...] = ()
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    cache_salt: str | None = None
    extra_key: msgspec.Raw | None = None
    lora_path: msgspec.Raw | None = None
    lora_request: msgspec.Raw | None = None
    uncompared: str | None = None
    user: str | None = None
    session_id: str | None = None
    conversation: str | None = None
    previous_response_id: str | None = None


async def peek(body: bytes) -> Peeked:
    """Read the fields of `body`; the event loop is never held for over 5 ms."""
    if not body:
        return Peeked(problem="empty")
    problem = None
    if len(body) <= SMALL:
        peeked = peek_small(body)
        problem = peeked.problem
        if problem != NOT_JSON:
            return peeked
    # Also what only some workers read: NaN, half of a surrogate pair, an order mark.
    found = await top_level(body, names=frozenset(_Fields.__struct_fields__))
    if isinstance(found, str):
        return Peeked(problem=problem or found)
    view = memoryview(body)
    raws = {name: msgspec.Raw(view[start:end]) for name, (start, end) in found.items()}
    return _peeked(_Fields(**raws))


def peek_small(body: bytes) -> Peeked:
    """`peek` in one go, for a body up to `SMALL`."""
    try:
        return _peeked(msgspec.json.decode(body, type=_Fields))
    except msgspec.ValidationError:
        return Peeked(problem="not_object")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Peeked(problem=NOT_JSON)
    except RecursionError:
        return Peeked(problem="too_deep")


def _peeked(fields: _Fields) -> Peeked:
    if any(len(memoryview(raw)) > FIELD_LIMIT for raw in _values(fields)):
        return Peeked(problem="too_complex")
    return Peeked(
        model=_value(fields.model, str),
        stream=_true(fields.stream),
        messages=_raw(fields.messages),
        prompt=_raw(fields.prompt),
        input=_raw(fields.input),
        content=_content(fields),
        max_tokens=_value(fields.max_tokens, int),
        max_completion_tokens=_value(fields.max_completion_tokens, int),
        cache_salt=_value(fields.cache_salt, str),
        extra_key=_raw(fields.extra_key),
        lora_path=_raw(fields.lora_path),
        lora_request=_raw(fields.lora_request),
        uncompared=_uncompared(fields),
        user=_name(fields.user),
        session_id=_name(fields.session_id),
        conversation=_conversation(fields),
        previous_response_id=_name(fields.previous_response_id),
    )


def _content(fields: _Fields) -> tuple[msgspec.Raw, ...]:
    parts = []
    for names in PROMPT_PARTS:
        for name in names:
            raw = getattr(fields, name)
            if raw is not _ABSENT and _raw(raw) is not None:
                parts.append(raw)
                break
    return tuple(parts)


def text_of(raw: msgspec.Raw) -> str | None:
    """A field's text, None where it is none."""
    return _value(raw, str)


def _name(raw: msgspec.Raw) -> str | None:
    """A text that names something; one that is too long names nothing."""
    return _value(raw, str) if len(memoryview(raw)) <= NAME_LIMIT else None


def _conversation(fields: _Fields) -> str | None:
    """TensorRT-LLM has it in an object, OpenAI in an object or bare."""
    for raw in (fields.conversation_params, fields.conversation):
        if not 0 < len(memoryview(raw)) <= NAME_LIMIT:
            continue
        try:
            named = msgspec.json.decode(raw, type=_Named)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            name = _name(raw)
        else:
            name = _name(named.conversation_id) or _name(named.id)
        if name:
            return name
    return None


def _uncompared(fields: _Fields) -> str | None:
    """Engines tell the cached tokens of one of several answers, whichever it is.

    For the log probabilities of a prompt they compute all of it anew.
    """
    if _several(fields.n) or _several(fields.best_of) or _true(fields.use_beam_search):
        return SEVERAL_ANSWERS
    echoed = _true(fields.echo) and _given(fields.logprobs)
    return PROMPT_LOGPROBS if echoed or _given(fields.prompt_logprobs) else None


def _several(raw: msgspec.Raw) -> bool:
    if len(memoryview(raw)) > LONGEST_NUMBER:
        return False
    number = _value(raw, int)
    return number is not None and number > 1


def _true(raw: msgspec.Raw) -> bool:
    return len(memoryview(raw)) == 4 and bytes(raw) == b"true"


def _given(raw: msgspec.Raw) -> bool:
    """Whether a field is asked for: not absent, null or false."""
    unasked = len(memoryview(raw)) <= 5 and bytes(raw) in (b"", b"null", b"false")
    return not unasked


def _values(fields: _Fields) -> tuple[msgspec.Raw, ...]:
    return (
        fields.model,
        fields.stream,
        fields.max_tokens,
        fields.max_completion_tokens,
        fields.cache_salt,
        fields.extra_key,
        fields.lora_path,
        fields.lora_request,
    )


def _raw(raw: msgspec.Raw) -> msgspec.Raw | None:
    if raw is _ABSENT or (len(memoryview(raw)) == 4 and bytes(raw) == b"null"):
        return None
    return raw


def _value(raw: msgspec.Raw, kind: type[_T]) -> _T | None:
    if raw is _ABSENT:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
