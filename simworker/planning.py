"""From an accepted call to the prompts and answers that make it up.

Runs in a worker thread: it renders, tokenizes and writes. It does no I/O.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import msgspec
from tokenizers import Tokenizer

from kvindex.blocks import unpack_ids
from render import Rendered, Renderer, Unrenderable
from simworker.answers import Answer, Author, last_text
from simworker.errors import ApiError
from simworker.request import Call

MOST_ANSWERS = 4096
"""Of one request, all its prompts and choices together: engines have no such bound, but
here they are planned one by one in the thread that all requests share."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt of a call, and the answers to it, one for each choice."""

    prompt_ids: list[int]
    answers: list[Answer]


class Wording(Protocol):
    """How one engine refuses what cannot be planned; its `errors` module."""

    def unrenderable(self, error: Unrenderable, model: str) -> ApiError:
        """What the renderer cannot do."""
        ...

    def out_of_vocabulary(
        self, token_id: int, size: int, param: str | None
    ) -> ApiError:
        """A prompt of ids that the model does not have."""
        ...

    def forwarded_too_long(self, limit: int, tokens: int) -> ApiError:
        """Ids that came with a chat are more than the context."""
        ...

    def check_length(self, limit: int, prompt: int, output: int | None) -> None:
        """Raises ApiError if a prompt and what it asks for do not fit the context."""
        ...


class Planner:
    """Renders the calls to one model and writes their answers."""

    def __init__(
        self,
        renderer: Renderer,
        author: Author,
        wording: Wording,
        *,
        model: str,
        max_model_len: int,
    ) -> None:
        self._renderer = renderer
        self._author = author
        self._wording = wording
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
        return [self._task(call, prompt, last_text(call.body.get("messages")))]

    def completion(self, call: Call) -> list[Task]:
        """The prompts of a completions call. Raises ApiError."""
        given = prompts_in(call.body)
        _check_answers(len(given), call)
        prompts = [token_list(item) for item in self.render_completion(call.body)]
        for prompt in prompts:
            self._check_vocabulary(prompt, "prompt")
        return [
            self._task(call, prompt, text if isinstance(text, str) else "")
            for prompt, text in zip(prompts, given, strict=True)
        ]

    def generation(self, call: Call) -> list[Task]:
        """The prompt of a call that brings ids and nothing else. Raises ApiError."""
        prompt = call.prompt_ids or []
        self._check_vocabulary(prompt, None)
        text = ""
        if self._author.reads_text:
            text = self._renderer.detokenize(prompt, skip_special_tokens=False)
        return [self._task(call, prompt, text)]

    def render_chat(self, body: Mapping[str, object]) -> Rendered:
        """A chat body's prompt. Raises ApiError."""
        try:
            return self._renderer.render_chat(body)
        except Unrenderable as error:
            raise self._wording.unrenderable(error, self._model) from error

    def render_completion(self, body: Mapping[str, object]) -> list[Rendered]:
        """A completions body's prompts. Raises ApiError."""
        try:
            return self._renderer.render_completion(body)
        except Unrenderable as error:
            raise self._wording.unrenderable(error, self._model) from error

    def token_strings(self, token_ids: Sequence[int]) -> list[str]:
        """The tokenizer's own spelling of each id; empty for one it does not know."""
        return [self._tokenizer.id_to_token(token_id) or "" for token_id in token_ids]

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        # Rarely asked for, so it is loaded only then.
        return Tokenizer.from_file(str(self._renderer.model.path / "tokenizer.json"))

    def _check_forwarded(self, prompt: Sequence[int]) -> None:
        if len(prompt) > self._max_model_len:
            raise self._wording.forwarded_too_long(self._max_model_len, len(prompt))
        self._check_vocabulary(prompt, ".".join(self._renderer.answers.ids_field))

    def _check_vocabulary(self, prompt: Sequence[int], param: str | None) -> None:
        highest, size = max(prompt, default=0), self._vocabulary
        if size is not None and highest >= size:
            raise self._wording.out_of_vocabulary(highest, size, param)

    def _task(self, call: Call, prompt: list[int], text: str) -> Task:
        """`text` is what an answers file may look into."""
        _check_answers(1, call)
        self._wording.check_length(self._max_model_len, len(prompt), call.max_tokens)
        limits = call.limits(self._max_model_len - len(prompt))
        messages = call.body.get("messages")
        answers = [
            self._author.write(
                prompt, limits, messages=messages, text=text, seed=call.seed + index
            )
            for index in range(call.choices)
        ]
        return Task(prompt_ids=prompt, answers=answers)


def prompts_in(body: Mapping[str, object]) -> Sequence[object]:
    """The prompts of a completions body, as they came: texts or lists of ids."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        return prompt
    return [prompt]


def _check_answers(prompts: int, call: Call) -> None:
    if call.choices < 1:
        raise ApiError(f"n must be at least 1, got {call.choices}.")
    if prompts * call.choices > MOST_ANSWERS:
        raise ApiError(f"More than {MOST_ANSWERS} answers to one request.")
    if call.max_tokens is not None and call.max_tokens < 1:
        raise ApiError(f"At least 1 token must be asked for, got {call.max_tokens}.")


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
