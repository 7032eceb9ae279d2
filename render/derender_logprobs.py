"""Log probabilities by id to OpenAI's shapes, in which tokens are texts."""

import codecs
from collections.abc import Sequence
from typing import Any

from render.body import Json
from render.detokenizer import REPLACEMENT, Pieces

CONTEXT = 4  # ids before a token that may have begun its character


def chat_logprobs(
    pieces: Pieces, logprobs: Json | None, context: Sequence[int] = ()
) -> Json | None:
    """The shape of chats: `{"content": [{token, logprob, bytes, top_logprobs}]}`.

    `context` are the ids before the first, of the same choice.
    """
    if logprobs is None:
        return None
    content = logprobs.get("content")
    if content is None:
        return {"content": None}
    before = list(context)
    entries: list[Json] = []
    for entry in content:
        top = [_token(pieces, one, before) for one in entry.get("top_logprobs") or ()]
        entries.append({**_token(pieces, entry, before), "top_logprobs": top})
        before = [*before, entry["token_id"]][-CONTEXT:]
    return {"content": entries}


def completion_logprobs(chat: Json | None, offset: int = 0) -> Json | None:
    """The shape of completions, of the shape of chats: lists side by side.

    `offset` is where the text of these tokens begins, in characters.
    """
    if chat is None:
        return None
    lists: dict[str, list[Any]] = {
        "text_offset": [],
        "token_logprobs": [],
        "tokens": [],
        "top_logprobs": [],
    }
    for entry in chat["content"] or ():
        top = {one["token"]: one["logprob"] for one in entry["top_logprobs"]}
        lists["text_offset"].append(offset)
        lists["token_logprobs"].append(entry["logprob"])
        lists["tokens"].append(entry["token"])
        lists["top_logprobs"].append(top or None)
        offset += len(entry["token"])
    return {**lists}


def _token(pieces: Pieces, entry: Json, before: Sequence[int]) -> Json:
    text = token_text(pieces, entry["token_id"], before)
    return {
        "token": text,
        "logprob": entry["logprob"],
        "bytes": list(text.encode("utf-8", "replace")),
    }


def token_text(pieces: Pieces, token_id: int, before: Sequence[int]) -> str:
    """The text of one token: the character it completes, nothing if it does not."""
    text = pieces[token_id].decode("utf-8", "replace")
    if not text.endswith(REPLACEMENT):
        return text
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in before[-CONTEXT:]:
        decoder.decode(pieces[token])
    return decoder.decode(pieces[token_id]).replace(REPLACEMENT, "")
