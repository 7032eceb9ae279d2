"""A chat's answer of what a worker generated, in the words of vLLM's own chat route."""

from collections.abc import Sequence
from secrets import token_hex

from gateway.tokens.line import Line, Piece
from gateway.tokens.writer import Writer
from render.body import Json
from render.derender import Message, joined
from render.derender_answers import chat_answer, chat_choice, deltas
from render.derender_state import merged


def new_call_id() -> str:
    """A name for a tool call, as vLLM makes them."""
    return f"chatcmpl-tool-{token_hex(8)}"


class ChatWriter(Writer):
    """`/v1/chat/completions`."""

    id_prefix = "chatcmpl-"
    _opened = False

    @property
    def _parsed(self) -> bool:
        return self.wanted.parsed

    @property
    def _hides(self) -> bool:
        """What would show reasoning that is not to be seen is not told."""
        return self._parsed and not self._asked.get("include_reasoning", True)

    @property
    def _options(self) -> Json:
        return self._asked.get("stream_options") or {}

    # --- whole

    def whole(self, responses: Sequence[Json]) -> Json:
        (response,) = responses
        pieces = self.take(0, response)
        choices = [self._whole_choice(*numbered) for numbered in enumerate(pieces)]
        counts = self.counts.totals(self.output_tokens)
        counts["prompt_tokens_details"] = self._prompt_details(whole=True)
        counts["completion_tokens_details"] = self._completion_details()
        told = {"prompt_logprobs": None, "kv_transfer_params": None, "metrics": None}
        answer = chat_answer(
            {**told, **response, "request_id": self.head.id},
            choices,
            counts,
            response.get("model") or self.head.model,
            self.head.created,
        )
        answer["system_fingerprint"] = self.head.fingerprint
        answer["ec_transfer_params"] = response.get("ec_transfer_params")
        return {**answer, **self._prompt_shown()}

    def _whole_choice(self, number: int, piece: Piece) -> Json:
        message = Message(
            events=joined(piece.events),
            finish_reason=piece.finish_reason,
            stop_reason=piece.stop_reason,
            logprobs=None if self._hides else piece.logprobs,
        )
        given = {"index": number, "token_ids": piece.token_ids}
        asked, parsed = self._asked, self._parsed
        return chat_choice(message, given, asked, parsed=parsed, new_id=new_call_id)

    def _prompt_shown(self) -> Json:
        prompt = self._generation.prompts[0]
        ids = prompt.ids if self._asked.get("return_token_ids") else None
        text = prompt.text if self._asked.get("return_prompt_text") else None
        return {"prompt_token_ids": ids, "prompt_text": text}

    # --- streamed

    def _choice(self, prompt: int, given: Json) -> list[Json]:
        line = self.line(prompt, given)
        if line.ended:
            return []
        events = [] if self._opened else self._opening()
        piece = line.feed(given)
        delta = self._delta(line, piece)
        return events if delta is None else [*events, self._event(given, line, delta)]

    def _delta(self, line: Line, piece: Piece) -> Json | None:
        """The choice of an event, None where there is nothing to tell."""
        shown, line.calls = deltas(
            joined(piece.events), self._asked, line.calls, new_call_id
        )
        delta = merged(shown)
        show_ids = bool(self._asked.get("return_token_ids")) and not self._hides
        logprobs = None if self._hides else piece.logprobs
        if not self._parsed:
            delta = {"content": "", **delta}
        elif not (delta or piece.ended or logprobs is not None or show_ids):
            return None
        choice: Json = {
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": piece.finish_reason,
        }
        if piece.ended:
            choice["stop_reason"] = piece.stop_reason
        choice["token_ids"] = [*piece.token_ids] if show_ids else None
        return choice

    def _event(self, given: Json, line: Line, choice: Json) -> Json:
        more: Json = {}
        ends = choice["finish_reason"] is not None
        if ends and self.head.fingerprint and not self._options.get("include_usage"):
            more["system_fingerprint"] = self.head.fingerprint
        running = self._running(line)
        return self._chunk([{"index": int(given["index"]), **choice}], running, **more)

    def _opening(self) -> list[Json]:
        """An event for each choice that names the role."""
        self._opened = True
        return [
            self._chunk([_role(index)], self._running(None), **self._prompt_shown())
            for index in range(self._n)
        ]

    def end(self) -> list[Json]:
        if not self._options.get("include_usage"):
            return []
        counts = self.counts.totals(self.output_tokens)
        for name, details in (
            ("prompt_tokens_details", self._prompt_details(whole=False)),
            ("completion_tokens_details", self._completion_details()),
        ):
            if details is not None:
                counts[name] = details
        more: Json = {"usage": counts}
        if self.head.fingerprint:
            more["system_fingerprint"] = self.head.fingerprint
        return [self._chunk([], {}, **more)]

    def _running(self, line: Line | None) -> Json:
        """The counts that go along with an event, if they are asked for."""
        if not self._continuous:
            return {}
        counts = self.counts.totals(line.tokens if line else 0)
        if self._reasons:
            reasoning = line.choice.reasoning_tokens if line else 0
            counts["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        return {"usage": counts}

    @property
    def _continuous(self) -> bool:
        options = self._options
        return bool(
            options.get("include_usage") and options.get("continuous_usage_stats")
        )

    def _chunk(self, choices: list[Json], counts: Json, **more: object) -> Json:
        return {
            "id": self.head.id,
            "object": "chat.completion.chunk",
            "created": self.head.created,
            "model": self.head.model,
            "choices": choices,
            **counts,
            **more,
        }

    # --- counts

    @property
    def _reasons(self) -> bool:
        return self.derenderer.parsers.reasoning is not None

    def _prompt_details(self, *, whole: bool) -> Json | None:
        if self.counts.cached is None:
            return None
        details: Json = {
            "cached_tokens": self.counts.cached,
            "created_cache_tokens": self.counts.created,
        }
        return {**details, "multimodal_tokens": None} if whole else details

    def _completion_details(self) -> Json | None:
        if not self._reasons:
            return None
        return {"reasoning_tokens": self.reasoning_tokens}


def _role(index: int) -> Json:
    return {
        "index": index,
        "delta": {"role": "assistant", "content": ""},
        "logprobs": None,
        "finish_reason": None,
    }
