"""A completion's answer of what a worker generated, in the words of vLLM's route."""

from collections.abc import Sequence

from gateway.tokens.line import Line, Piece
from gateway.tokens.writer import Writer
from render.body import Json
from render.derender_answers import completion_answer
from render.parsers.events import Text


class CompletionWriter(Writer):
    """`/v1/completions`; nothing is parsed."""

    chat = False
    id_prefix = "cmpl-"

    @property
    def _options(self) -> Json:
        return self._asked.get("stream_options") or {}

    @property
    def _prompt_only(self) -> bool:
        """Whether no answer is wanted; one token is generated nevertheless."""
        return bool(self._asked.get("echo")) and self._asked.get("max_tokens") == 0

    @property
    def _shows_ids(self) -> bool:
        return bool(self._asked.get("return_token_ids"))

    # --- whole

    def whole(self, responses: Sequence[Json]) -> Json:
        choices: list[Json] = []
        for prompt, response in enumerate(responses):
            for piece in self.take(prompt, response):
                choice = self._whole_choice(prompt, piece, response)
                choices.append({"index": len(choices), **choice})
        counts = self.counts.totals(self.output_tokens)
        counts["prompt_tokens_details"] = self._prompt_details(whole=True)
        counts["completion_tokens_details"] = None
        told = {"kv_transfer_params": None, "metrics": None}
        first = {**told, **responses[0], "request_id": self.head.id}
        answer = completion_answer(
            [first, *({**told, **other} for other in responses[1:])],
            choices,
            counts,
            responses[0].get("model") or self.head.model,
            self.head.created,
        )
        answer["system_fingerprint"] = self.head.fingerprint
        answer["ec_transfer_params"] = responses[0].get("ec_transfer_params")
        return answer

    def _whole_choice(self, prompt: int, piece: Piece, response: Json) -> Json:
        ids = self._generation.prompts[prompt].ids if self._shows_ids else None
        return {
            "text": self._echoed(prompt) + self._text(piece),
            "logprobs": piece.logprobs,
            "finish_reason": piece.finish_reason,
            "stop_reason": piece.stop_reason,
            "token_ids": [*piece.token_ids] if self._shows_ids else None,
            "prompt_logprobs": response.get("prompt_logprobs"),
            "prompt_token_ids": ids,
            "routed_experts": None,
        }

    def _echoed(self, prompt: int) -> str:
        """The prompt's text, where the client wants it before the answer."""
        if not self._asked.get("echo") or self._shows_ids:
            return ""
        given = self._generation.prompts[prompt]
        if given.text is not None:
            return given.text
        return self._generation.service.renderer.detokenize(given.token_ids)

    # --- streamed

    def _choice(self, prompt: int, given: Json) -> list[Json]:
        line = self.line(prompt, given)
        if line.ended:
            return []
        begins = line.tokens == 0
        piece = line.feed(given)
        ids = None
        if begins and (self._shows_ids or self._asked.get("echo")):
            ids = self._generation.prompts[prompt].ids
        choice = {
            "index": self.index(prompt, given),
            "text": (self._echoed(prompt) if begins else "") + self._text(piece),
            "logprobs": piece.logprobs,
            "finish_reason": piece.finish_reason,
            "stop_reason": piece.stop_reason,
            "prompt_token_ids": ids,
            "token_ids": [*piece.token_ids] if self._shows_ids else None,
        }
        return [self._chunk([choice], **self._running(prompt, line, piece))]

    def _running(self, prompt: int, line: Line, piece: Piece) -> Json:
        more: Json = {}
        counted = self._options.get("include_usage")
        if counted and self._options.get("continuous_usage_stats"):
            size = len(self._generation.prompts[prompt])
            more["usage"] = self.counts.totals(line.tokens, size)
        if piece.ended and not counted and self.head.fingerprint:
            more["system_fingerprint"] = self.head.fingerprint
        return more

    def end(self) -> list[Json]:
        if not self._options.get("include_usage"):
            return []
        counts = self.counts.totals(self.output_tokens)
        details = self._prompt_details(whole=False)
        if details is not None:
            counts["prompt_tokens_details"] = details
        more: Json = {"usage": counts}
        if self.head.fingerprint:
            more["system_fingerprint"] = self.head.fingerprint
        return [self._chunk([], **more)]

    def _chunk(self, choices: list[Json], **more: object) -> Json:
        return {
            "id": self.head.id,
            "object": "text_completion",
            "created": self.head.created,
            "model": self.head.model,
            "choices": choices,
            **more,
        }

    def _prompt_details(self, *, whole: bool) -> Json | None:
        cached = self.counts.cached
        if cached is None:
            return None
        if not whole:
            return {"cached_tokens": cached}
        return {
            "cached_tokens": cached,
            "created_cache_tokens": None,
            "multimodal_tokens": None,
        }

    def _text(self, piece: Piece) -> str:
        if self._prompt_only:
            return ""
        return "".join(event.text for event in piece.events if isinstance(event, Text))
