"""From an accepted call to the prompts and answers that make it up.

Runs in a worker thread: it renders, tokenizes and writes. It does no I/O.
"""

import json
from collections.abc import Sequence
from functools import cached_property

import msgspec
from tokenizers import Tokenizer

from kvindex.blocks import unpack_ids
from render import Rendered, Renderer, Unrenderable
from simworker.answers import Answer, Author
from simworker.vllm.calls import Call
from simworker.vllm.errors import ApiError, bad_value, too_long, too_long_with_output
from simworker.vllm.fields import Body


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt of a call, and the answers to it, one for each choice."""

    prompt_ids: list[int]
    answers: list[Answer]


class Planner:
    """Renders the calls to one model and writes their answers."""

    def __init__(
        self,
        renderer: Renderer,
        author: Author,
        *,
        model: str,
        max_model_len: int,
    ) -> None:
        self._renderer = renderer
        self._author = author
        self._model = model
        self._max_model_len = max_model_len
        self._vocabulary = vocabulary_size(renderer)

    def chat(self, call: Call) -> list[Task]:
        """The one prompt of a chat call. Raises ApiError."""
        if call.prompt_ids is not None:
            self._check_forwarded(call.prompt_ids)
            prompt = call.prompt_ids
        else:
            prompt = token_list(self.render_chat(call.body))
        return [self._task(call, prompt)]

    def completion(self, call: Call) -> list[Task]:
        """The prompts of a completions call. Raises ApiError."""
        prompts = [token_list(item) for item in self.render_completion(call.body)]
        for prompt in prompts:
            self._check_vocabulary(prompt, "prompt")
        return [self._task(call, prompt) for prompt in prompts]

    def render_chat(self, body: Body) -> Rendered:
        """A chat body's prompt. Raises ApiError."""
        try:
            return self._renderer.render_chat(body)
        except Unrenderable as error:
            raise self._refusal(error) from error

    def render_completion(self, body: Body) -> list[Rendered]:
        """A completions body's prompts. Raises ApiError."""
        try:
            return self._renderer.render_completion(body)
        except Unrenderable as error:
            raise self._refusal(error) from error

    def token_strings(self, token_ids: Sequence[int]) -> list[str]:
        """The tokenizer's own spelling of each id; empty for one it does not know."""
        return [self._tokenizer.id_to_token(token_id) or "" for token_id in token_ids]

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        # Rarely asked for, so it is loaded only then.
        return Tokenizer.from_file(str(self._renderer.model.path / "tokenizer.json"))

    def _refusal(self, error: Unrenderable) -> ApiError:
        if error.reason == "media":
            return ApiError(f"{self._model} is not a multimodal model")
        return ApiError(str(error))

    def _check_forwarded(self, prompt: Sequence[int]) -> None:
        if len(prompt) > self._max_model_len:
            raise ApiError(
                f"Input length ({len(prompt)}) exceeds model's maximum context length "
                f"({self._max_model_len})."
            )
        self._check_vocabulary(prompt, "kv_transfer_params.prompt_token_ids")

    def _check_vocabulary(self, prompt: Sequence[int], param: str) -> None:
        highest = max(prompt)
        if self._vocabulary is not None and highest >= self._vocabulary:
            raise bad_value(f"Token id {highest} is out of vocabulary", param)

    def _task(self, call: Call, prompt: list[int]) -> Task:
        room = self._max_model_len - len(prompt)
        if room < 0:
            raise too_long(self._max_model_len)
        wanted = call.max_tokens or 1
        if wanted > room:
            raise too_long_with_output(self._max_model_len, len(prompt), wanted)
        limits = call.limits(room)
        answers = [
            self._author.write(prompt, limits, body=call.body, seed=call.seed + index)
            for index in range(call.choices)
        ]
        return Task(prompt_ids=prompt, answers=answers)


def vocabulary_size(renderer: Renderer) -> int | None:
    """What the model's configuration says; None if it says nothing."""
    try:
        config = json.loads((renderer.model.path / "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    size = config.get("vocab_size") if isinstance(config, dict) else None
    return size if isinstance(size, int) else None


def token_list(rendered: Rendered) -> list[int]:
    """The token ids of a rendering as a list."""
    return unpack_ids(rendered.token_ids)
