"""vLLM's streaming derender: a chunk and a state in, a chunk and a state out.

The client carries the state, so any replica can take the next chunk. Without a parser
it is a small window of tokens. With one it holds every id so far, and each call goes
through them again: `derender_stream.py` is the way that does not.
"""

from collections.abc import Mapping, Sequence

import msgspec

from render.body import Json
from render.derender import Derenderer, joined
from render.derender_answers import deltas, new_call_id
from render.derender_choice import Asked
from render.derender_logprobs import CONTEXT, chat_logprobs, completion_logprobs
from render.derender_prompt import Prompt
from render.derender_request import Bounds, read_ids
from render.derender_window import Window, moved, seeded
from render.fields import INT64, Field, read_fields
from render.refused import RenderRefused, not_valid

MOST_TOKENS = 1024  # of a window
STATE: Mapping[str, Field] = {
    "prev_tokens": Field("list", (), False, items="text", most=MOST_TOKENS),
    "prefix_offset": Field("integer", 0, False, low=0, high=INT64[1]),
    "read_offset": Field("integer", 0, False, low=0, high=INT64[1]),
    "role_sent": Field("flag", False, False),
    "logprob_context_token_ids": Field("list", (), False, most=CONTEXT),
    "logprob_text_offset": Field("integer", 0, False, low=0, high=INT64[1]),
    "output_token_ids": Field("list", (), False),
    "output_chunk_lens": Field("list", (), False),
    "tools_streamed": Field("flag", False, False),
    "last_tool_call_ids": Field("list", (), False, items="text"),
}


def read_state(value: object) -> Json | None:
    """The state of a chunk before; None for the first; raises RenderRefused."""
    if value is None:
        return None
    where = "body.stream_state"
    if not isinstance(value, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise not_valid("model_attributes_type", where, message, value)
    state = read_fields(value, STATE, where)
    for name in ("logprob_context_token_ids", "output_token_ids", "output_chunk_lens"):
        state[name] = read_ids([*state[name]], f"{where}.{name}") or []
    tokens = len(state["prev_tokens"])
    if max(state["prefix_offset"], state["read_offset"]) > tokens:
        raise not_valid(
            "value_error", where, "Value error, offsets exceed prev_tokens", value
        )
    lengths = state["output_chunk_lens"]
    if sum(lengths) != len(state["output_token_ids"]) or 0 in lengths:
        raise not_valid(
            "value_error",
            where,
            "Value error, output_chunk_lens must sum to the length of output_token_ids",
            value,
        )
    return state


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call: a chunk of one choice, and what was before it."""

    chunk: Json
    state: Json | None
    request: Json | None
    prompt_ids: Sequence[int] | None
    model: str
    prompt_tokens: int | None
    created: int

    @property
    def choice(self) -> Json | None:
        """The chunk's choice; None for a chunk of counts."""
        choices: list[Json] = self.chunk["choices"]
        return choices[0] if choices else None


def check_step(step: Step, bounds: Bounds) -> None:
    """Raises RenderRefused for more choices than one, and for too many ids."""
    count = len(step.chunk["choices"])
    if count > 1:
        raise RenderRefused(
            f"derender_chat_stream expects at most one choice per chunk (got {count})."
        )
    prompt = len(step.prompt_ids or ())
    prior = len((step.state or {}).get("output_token_ids", ()))
    choice = step.choice
    delta = len((choice or {}).get("token_ids") or ())
    if bounds.limit is not None and prompt + prior + delta > bounds.limit:
        raise RenderRefused(
            f"prompt_token_ids length ({prompt}) plus output_token_ids length "
            f"({prior}) plus delta ({delta}) exceeds max_model_len ({bounds.limit})."
        )
    if choice is not None:
        bounds.check_choice_ids(choice, "generate_chunk.choices.0")
    ids = (step.state or {}).get("output_token_ids", ())
    bounds.check_ids(ids, "stream_state.output_token_ids")


def stepped(derenderer: Derenderer, asked: Asked, step: Step, *, chat: bool) -> Json:
    """The chunk and the state after one call."""
    replays = asked.parsed or bool(asked.stops)
    state = step.state or read_state({})
    if state is None or step.choice is None:
        return _answer(step, [], state or {}, chat=chat)
    if replays:
        return _replayed(derenderer, asked, step, state, chat=chat)
    return _windowed(derenderer, asked, step, state, chat=chat)


def _windowed(
    derenderer: Derenderer, asked: Asked, step: Step, state: Json, *, chat: bool
) -> Json:
    """Text from where the window before ended; tokens that may go on are kept."""
    choice = step.choice or {}
    ids = choice["token_ids"] or []
    vocabulary, skips = derenderer.vocabulary, asked.skip_special_tokens
    before = Window(state["prev_tokens"], state["read_offset"])
    if step.state is None:
        before = seeded(vocabulary, step.prompt_ids or (), skip_special_tokens=skips)
    text, window = moved(vocabulary, before, ids, skip_special_tokens=skips)
    context = state["logprob_context_token_ids"]
    logprobs = chat_logprobs(vocabulary.pieces, choice["logprobs"], context)
    after = {
        **state,
        "prev_tokens": window.tokens,
        "prefix_offset": 0,
        "read_offset": window.read,
        "logprob_context_token_ids": [*context, *ids][-CONTEXT:],
    }
    if chat:
        delta: Json = {} if state["role_sent"] else {"role": "assistant"}
        delta |= {"content": text} if text else {}
        after["role_sent"] = True
        shown: Json = {"delta": delta, "logprobs": logprobs}
    else:
        offset = state["logprob_text_offset"]
        after["logprob_text_offset"] = offset + len(text)
        shown = {"text": text, "logprobs": completion_logprobs(logprobs, offset)}
    reasons = (choice["finish_reason"], choice["stop_reason"])
    return _answer(step, [_choice(step, shown, reasons)], after, chat=chat)


def _replayed(
    derenderer: Derenderer, asked: Asked, step: Step, state: Json, *, chat: bool
) -> Json:
    """The events of this chunk, after those of all ids before it."""
    given = step.choice or {}
    choice = derenderer.choice(asked, Prompt(step.prompt_ids))
    before = choice.feed(state["output_token_ids"])
    called = deltas(before, None, 0)[1]
    ids = given["token_ids"] or []
    events = choice.feed(ids)
    reasons = (given["finish_reason"], given["stop_reason"])
    if given["finish_reason"] is not None:
        ending = choice.end(*reasons)
        events = [*events, *ending.events]
        reasons = (ending.finish_reason, ending.stop_reason)
    call_ids = [*state["last_tool_call_ids"]]
    shown, count = deltas(
        joined(events), step.request, called, lambda: _pinned(call_ids)
    )
    after = {
        **state,
        "output_token_ids": [*state["output_token_ids"], *ids],
        "output_chunk_lens": [
            *state["output_chunk_lens"],
            *([len(ids)] if ids else []),
        ],
        "role_sent": True,
        "tools_streamed": count > 0,
        "last_tool_call_ids": call_ids,
    }
    if not chat:
        text = "".join(one.get("content", "") for one in shown)
        shown_text: Json = {"text": text, "logprobs": None}
        return _answer(step, [_choice(step, shown_text, reasons)], after, chat=chat)
    delta = merged(shown)
    if not state["role_sent"]:
        delta = {"role": "assistant", "content": None, **delta}
    shown_delta: Json = {"delta": delta, "logprobs": None}
    return _answer(step, [_choice(step, shown_delta, reasons)], after, chat=chat)


def _pinned(call_ids: list[str]) -> str:
    call_ids.append(new_call_id())
    return call_ids[-1]


def merged(parts: Sequence[Json]) -> Json:
    """Several deltas of one chunk as one: texts joined, calls in one list."""
    delta: Json = {}
    for part in parts:
        for name, value in part.items():
            delta[name] = delta[name] + value if name in delta else value
    return delta


def _choice(step: Step, shown: Json, reasons: tuple[object, object]) -> Json:
    given, request = step.choice or {}, step.request or {}
    ids_shown = request.get("return_token_ids") and request.get("include_reasoning", 1)
    choice = {
        "index": given["index"],
        **shown,
        "finish_reason": reasons[0],
        "stop_reason": reasons[1],
    }
    if "delta" in shown:
        choice["token_ids"] = given["token_ids"] if ids_shown else None
    return choice


def _answer(step: Step, choices: list[Json], state: Json, *, chat: bool) -> Json:
    counts = step.chunk["usage"]
    usage = None
    if counts is not None:
        asked = step.prompt_tokens
        prompt = counts.get("prompt_tokens") or 0 if asked is None else asked
        completion = counts.get("completion_tokens") or 0
        usage = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
        }
    chunk = {
        "id": step.chunk["request_id"],
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": step.created,
        "model": step.model,
        "choices": choices,
        "usage": usage,
        "system_fingerprint": None,
        "metrics": step.chunk["metrics"],
    }
    if chat:
        chunk |= {"prompt_token_ids": None, "prompt_text": None}
    return {"chunk": chunk, "stream_state": {**state}}
