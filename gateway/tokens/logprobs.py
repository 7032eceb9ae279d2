"""Log probabilities as the generate route tells them -> those that a client asked for.

It tells one at least of each position, and the id that was taken first. What chats and
completions show of them differs.
"""

from collections.abc import Callable, Sequence

from render.body import Json
from render.derender_logprobs import chat_logprobs, completion_logprobs
from render.detokenizer import Pieces

NAME = "token_id:"
Shown = Callable[[Json], int]
"""How many alternatives are shown of a position."""


class TokenNames(Pieces):
    """Ids spelt as `token_id:N`, for clients that ask for that."""

    def __init__(self) -> None:
        dict.__init__(self)

    def __missing__(self, token_id: int) -> bytes:
        return f"{NAME}{token_id}".encode()


def of_chat(asked: Json) -> Shown:
    """A chat shows `top_logprobs`; -1: all."""
    count = asked.get("top_logprobs") or 0
    if asked.get("logprob_token_ids") or count < 0:
        return lambda entry: len(entry["top_logprobs"])
    return lambda entry: count


def of_completion(asked: Json) -> Shown:
    """A completion shows `logprobs`, and the id that was taken if it is not there."""
    count = asked.get("logprobs") or 0
    if asked.get("logprob_token_ids") or count < 0:
        return lambda entry: len(entry["top_logprobs"])
    return lambda entry: max(1, count if _is_among(entry, count) else count + 1)


def _is_among(entry: Json, count: int) -> bool:
    """Whether the id that was taken is one of the likeliest."""
    rank = entry.get("rank")
    return isinstance(rank, int) and rank <= count


def shown(given: Json, show: Shown) -> Json:
    """A choice with the alternatives that are shown; it is not changed otherwise."""
    logprobs = given.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(logprobs, dict) or not isinstance(content, list):
        return given
    kept = [
        _shown(entry, show) if isinstance(entry, dict) else entry for entry in content
    ]
    return {**given, "logprobs": {**logprobs, "content": kept}}


def _shown(entry: Json, show: Shown) -> Json:
    top = entry.get("top_logprobs")
    if not isinstance(top, list):
        return _with_id(entry)
    alternatives = [
        _with_id(one) if isinstance(one, dict) else one for one in top[: show(entry)]
    ]
    return {**_with_id(entry), "top_logprobs": alternatives}


def _with_id(entry: Json) -> Json:
    """vLLM before 0.32 has ids as `"token": "token_id:N"`."""
    token = entry.get("token")
    if "token_id" in entry or not isinstance(token, str):
        return entry
    number = token.removeprefix(NAME)
    return {**entry, "token_id": int(number)} if number.isdecimal() else entry


def cut(logprobs: Json | None, count: int) -> Json | None:
    """Those of the first ids."""
    if logprobs is None or not isinstance(logprobs.get("content"), list):
        return logprobs
    return {**logprobs, "content": logprobs["content"][:count]}


class LogprobTexts:
    """One choice's log probabilities with texts for ids, as they come."""

    def __init__(self, pieces: Pieces, *, lists: bool, named: bool) -> None:
        """`lists`: side by side, as completions have them; `named`: ids are names."""
        self._pieces = pieces
        self._names = TokenNames() if named else None
        self._lists = lists
        self._context: Sequence[int] = ()
        self._offset = 0

    def feed(self, logprobs: Json | None, ids: Sequence[int]) -> Json | None:
        """Those of these ids."""
        told = chat_logprobs(self._pieces, logprobs, self._context)
        self._context = [*self._context, *ids][-4:]
        if self._names is not None and told is not None and told["content"]:
            named = chat_logprobs(self._names, logprobs) or {"content": []}
            pairs = zip(named["content"], told["content"], strict=True)
            # The bytes are those of the text, but for alternatives.
            told = {"content": [{**n, "bytes": t["bytes"]} for n, t in pairs]}
        if not self._lists:
            return told
        lists = completion_logprobs(told, self._offset)
        if lists and lists["tokens"]:
            self._offset = lists["text_offset"][-1] + len(lists["tokens"][-1])
        return lists
