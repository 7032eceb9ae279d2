"""Chats of many forms for a real worker, turn by turn. No I/O.

The texts are the demo's; a form says how a session's turn becomes a request: streamed
or not, with tools, content parts, template arguments, a salt, as a completion, ...
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from render import Renderer
from simworker.workload import Message, Session, Shape, generate

Body = dict[str, Any]
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
SHAPE = Shape(
    products=2,
    system_sentences=(14, 21),
    turns=(5, 5),
    question_sentences=(1, 3),
    log_lines=(1, 4),
)
USAGE = {"include_usage": True}
TOOL = {
    "type": "function",
    "function": {
        "name": "find_case",
        "description": "Look up a case by its number",
        "parameters": {
            "type": "object",
            "properties": {"case": {"type": "integer"}},
            "required": ["case"],
        },
    },
}
LONG_REPEATS = 5


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request to be sent: the form and turn it belongs to, its path and body."""

    form: str
    turn: int
    path: str
    body: Body


class Chat:
    """A session in one form, with the answers it has had so far."""

    def __init__(
        self, form: str, session: Session, model: str, renderer: Renderer
    ) -> None:
        self.form = form
        self.answers: list[str] = []
        self._session = session
        self._model = model
        self._renderer = renderer

    def ask(self, max_tokens: int) -> Ask:
        """The request of the turn that follows the answers."""
        turn = len(self.answers)
        messages = self._session.messages(self.answers)
        body: Body = {"model": self._model, "max_tokens": max_tokens, "temperature": 0}
        # Every other turn shows the ids the worker used.
        body |= {"return_token_ids": True} if turn % 2 == 0 else {}
        path, fields = _FORMS[self.form](messages, turn, self._renderer)
        return Ask(form=self.form, turn=turn, path=path, body=body | fields)


def _plain(messages: Sequence[Message], turn: int, _: Renderer) -> tuple[str, Body]:
    return CHAT, {"messages": messages}


def _stream(messages: Sequence[Message], turn: int, _: Renderer) -> tuple[str, Body]:
    return CHAT, {"messages": messages, "stream": True, "stream_options": USAGE}


def _tools(messages: Sequence[Message], turn: int, _: Renderer) -> tuple[str, Body]:
    """From the second turn on, the last question is answered by a tool's result."""
    case = {"name": "find_case", "arguments": '{"case": 100}'}
    call = {"id": "call-1", "type": "function", "function": case}
    asked: Body = {"role": "assistant", "content": None, "tool_calls": [call]}
    told: Body = {"role": "tool", "tool_call_id": "call-1", "content": '{"open": true}'}
    extra = [asked, told] if turn else []
    return CHAT, {"messages": [*messages, *extra], "tools": [TOOL]}


def _parts(messages: Sequence[Message], turn: int, _: Renderer) -> tuple[str, Body]:
    split = []
    for message in messages:
        lines = message["content"].splitlines() or [""]
        parts = [{"type": "text", "text": line} for line in lines]
        split.append({"role": message["role"], "content": parts})
    return CHAT, {"messages": split}


def _thinking(messages: Sequence[Message], turn: int, _: Renderer) -> tuple[str, Body]:
    arguments = {"enable_thinking": turn >= 3}
    return CHAT, {"messages": messages, "chat_template_kwargs": arguments}


def _salted(messages: Sequence[Message], turn: int, _: Renderer) -> tuple[str, Body]:
    return CHAT, {"messages": messages, "cache_salt": "tenant-1" if turn else "other"}


def _long(messages: Sequence[Message], turn: int, _: Renderer) -> tuple[str, Body]:
    """A handbook several times as long."""
    system = messages[0]["content"]
    pages = "\n\n".join(f"Page {n}.\n{system}" for n in range(LONG_REPEATS))
    path, body = _stream(messages[1:], turn, _)
    return path, body | {
        "messages": [{"role": "system", "content": pages}, *messages[1:]]
    }


def _text(messages: Sequence[Message], turn: int, _: Renderer) -> tuple[str, Body]:
    streamed = {"stream": True, "stream_options": USAGE} if turn % 2 else {}
    return COMPLETIONS, {"prompt": _transcript(messages), **streamed}


def _ids(
    messages: Sequence[Message], turn: int, renderer: Renderer
) -> tuple[str, Body]:
    body = msgspec.json.encode({"prompt": _transcript(messages)})
    ids = memoryview(renderer.render_completion(body)[0].token_ids).cast("I").tolist()
    return COMPLETIONS, {"prompt": ids}


def _odd(messages: Sequence[Message], turn: int, _: Renderer) -> tuple[str, Body]:
    """Forms whose hits are known to differ, or are not told: one for each turn."""
    text = _transcript(messages)
    path, streamed = _stream(messages, turn, _)
    cases: tuple[tuple[str, Body], ...] = (
        (CHAT, {"messages": messages, "n": 2, "temperature": 0.7}),
        (CHAT, {"messages": messages, "prompt_logprobs": 0}),
        (COMPLETIONS, {"prompt": [text, text[: len(text) // 2], "Short."]}),
        (path, streamed | {"stream_options": None}),
        (
            CHAT,
            {
                "messages": [*messages, {"role": "assistant", "content": "Surely, it"}],
                "continue_final_message": True,
                "add_generation_prompt": False,
            },
        ),
    )
    return cases[turn]


def _transcript(messages: Sequence[Message]) -> str:
    return "\n\n".join(f"{m['role']}: {m['content']}" for m in messages)


_FORMS: dict[str, Callable[[Sequence[Message], int, Renderer], tuple[str, Body]]] = {
    "plain": _plain,
    "stream": _stream,
    "tools": _tools,
    "parts": _parts,
    "thinking": _thinking,
    "salted": _salted,
    "long": _long,
    "text": _text,
    "ids": _ids,
    "odd": _odd,
}


def chats(
    seed: int, count: int, model: str, renderer: Renderer, *, odd: bool = True
) -> Iterator[Chat]:
    """Chats to take in turns, `count` requests in all: each form, then over again."""
    forms = [form for form in _FORMS if odd or form != "odd"]
    turns = SHAPE.turns[0]
    rounds = -(-count // (len(forms) * turns))
    sessions = generate(seed, rounds * len(forms), SHAPE)
    held = [
        Chat(forms[number % len(forms)], session, model, renderer)
        for number, session in enumerate(sessions)
    ]
    rows = [held[i : i + len(forms)] for i in range(0, len(held), len(forms))]
    asked = (chat for row in rows for _ in range(turns) for chat in row)
    return itertools.islice(asked, count)
