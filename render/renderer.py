"""Renderer: one model, one engine profile; OpenAI request bodies to token ids.

It renders for routing: the ids a worker would use if it accepts the request. Whether
the worker does (lengths, parsers, unknown roles) is the worker's decision. No sockets
and no event loop; safe to call from several threads.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from kvindex.blocks import pack_ids
from render.body import (
    ChatBody,
    CompletionBody,
    Truncation,
    flag,
    read_chat,
    read_completion,
    truncation,
)
from render.content_format import ContentFormat
from render.conversation import Conversation
from render.encoder import Encoder
from render.errors import ModelNotFound, Unrenderable
from render.model import Model, load_model
from render.profiles import vllm
from render.template import MAX_TEXT, ChatTemplates

MiB = 1024 * 1024
CONTENT_FORMATS: Mapping[str, ContentFormat | None] = {
    "auto": None,
    "string": "string",
    "openai": "openai",
}


class Profile(Protocol):
    """What one engine makes of a chat body (`profiles/`)."""

    NAME: str

    def prepare(
        self,
        body: ChatBody,
        templates: ChatTemplates,
        *,
        content_format: ContentFormat | None,
        defaults: Mapping[str, object],
    ) -> Conversation:
        """The conversation shown to the template; raises Unrenderable."""
        ...

    def forwarded_ids(self, body: ChatBody) -> list[object] | None:
        """Ids in the body that the engine takes in place of the messages."""
        ...

    def refusal(self, model: Model) -> str | None:
        """Why the engine does not use this model's template for chats, if so."""
        ...


PROFILES: Mapping[str, Profile] = {vllm.NAME: vllm}


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt as token ids.

    `token_ids` are unsigned 32-bit little-endian; `text` is what was encoded, None if
    the ids were given. `template_s` and `tokenize_s` are the seconds taken.
    """

    token_ids: bytes
    profile: str
    text: str | None
    template_s: float
    tokenize_s: float

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self.token_ids) // 4


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt before it is encoded: a text, or ids that were given (as in Rendered).

    `special` is whether the tokenizer adds its special tokens around the text.
    """

    text: str | None = None
    given: bytes | None = None
    special: bool = False
    cut: Truncation | None = None
    template_s: float = 0.0


class Renderer:
    """Renders chats and completions of one model as one engine does."""

    def __init__(
        self,
        *,
        model: Model,
        profile: Profile,
        templates: ChatTemplates,
        encoder: Encoder,
        defaults: Mapping[str, object],
        content_format: ContentFormat | None,
    ) -> None:
        self.model = model
        self.profile = profile.NAME
        self._profile = profile
        self._refusal = profile.refusal(model)
        self._templates = templates
        self._encoder = encoder
        self._defaults = defaults
        self._content_format = content_format

    @classmethod
    def load(
        cls,
        path_or_id: str | Path,
        *,
        profile: str = vllm.NAME,
        encoder: str = "auto",
        chat_template: str | None = None,
        default_chat_template_kwargs: Mapping[str, object] | None = None,
        chat_template_content_format: str = "auto",
        segment_cache_bytes: int = 64 * MiB,
        clock: Callable[[], float] = time.time,
    ) -> "Renderer":
        """Load a model directory, or a hub id from the local cache; takes a second.

        The chat template options are those of the worker. `encoder` is "auto",
        "fastokens" or "tokenizers"; `clock` (epoch seconds) is what templates that
        print the date read. Raises ModelNotFound.
        """
        if profile not in PROFILES:
            raise ModelNotFound(f"no profile {profile!r}: one of {', '.join(PROFILES)}")
        if chat_template_content_format not in CONTENT_FORMATS:
            raise ModelNotFound(f"no content format {chat_template_content_format!r}")
        model = load_model(path_or_id)
        templates = ChatTemplates.load(model, chat_template=chat_template, clock=clock)
        return cls(
            model=model,
            profile=PROFILES[profile],
            templates=templates,
            encoder=Encoder.load(
                model.tokenizer_file,
                encoder=encoder,
                cache_bytes=segment_cache_bytes,
                written=templates.sources(),
            ),
            defaults=default_chat_template_kwargs or {},
            content_format=CONTENT_FORMATS[chat_template_content_format],
        )

    @property
    def encoder_name(self) -> str:
        """The library that encodes: "fastokens" or "tokenizers"."""
        return self._encoder.name

    @property
    def vocabulary_size(self) -> int:
        """The number of ids the tokenizer knows."""
        return self._encoder.vocabulary_size

    def render_chat(self, body: bytes | Mapping[str, object]) -> Rendered:
        """The prompt of a chat completion body; raises Unrenderable."""
        return self.encode(self.chat_prompt(body))

    def render_completion(self, body: bytes | Mapping[str, object]) -> list[Rendered]:
        """Each prompt of a completion body; raises Unrenderable."""
        return [self.encode(prompt) for prompt in self.completion_prompts(body)]

    def chat_prompt(self, body: bytes | Mapping[str, object]) -> Prompt:
        """The text of a chat completion body, not yet encoded; raises Unrenderable."""
        chat = read_chat(body)
        ids = self._profile.forwarded_ids(chat)
        if ids is not None:
            return Prompt(given=_packed(ids))
        cut = truncation(chat)
        special = flag(chat.add_special_tokens, "add_special_tokens", default=False)
        if self._refusal is not None:
            raise Unrenderable("model_type", self._refusal)
        start = time.perf_counter()
        text = self._profile.prepare(
            chat,
            self._templates,
            content_format=self._content_format,
            defaults=self._defaults,
        ).text(self.model.special_tokens)
        return Prompt(
            text=text, special=special, cut=cut, template_s=time.perf_counter() - start
        )

    def completion_prompts(self, body: bytes | Mapping[str, object]) -> list[Prompt]:
        """Each prompt of a completion body, not yet encoded; raises Unrenderable."""
        completion = read_completion(body)
        cut = truncation(completion)
        special = flag(
            completion.add_special_tokens, "add_special_tokens", default=True
        )
        return [
            Prompt(text=prompt, special=special, cut=cut)
            if isinstance(prompt, str)
            else Prompt(given=_packed(prompt), cut=cut)
            for prompt in _prompts(completion)
        ]

    def encode(self, prompt: Prompt) -> Rendered:
        """The ids of a prompt; raises Unrenderable."""
        start = time.perf_counter()
        if prompt.given is not None:
            ids = _truncated(prompt.given, prompt.cut, 0)
        else:
            ids = self._encoded(prompt.text or "", prompt.special, prompt.cut)
        return Rendered(
            token_ids=ids,
            profile=self.profile,
            text=prompt.text,
            template_s=prompt.template_s,
            tokenize_s=time.perf_counter() - start,
        )

    def detokenize(
        self, token_ids: bytes | Sequence[int], *, skip_special_tokens: bool = True
    ) -> str:
        """The text of ids; raises ValueError if these are no ids."""
        return self._encoder.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def _encoded(self, text: str, special: bool, cut: Truncation | None) -> bytes:
        if len(text) > MAX_TEXT:
            raise Unrenderable("too_large", f"a prompt of {len(text)} characters")
        if cut is None:
            return self._encoder.encode(text, add_special_tokens=special)
        ids = self._encoder.encode(text, add_special_tokens=False)
        # As tokenizers truncates: room is left for what is added afterwards.
        ids = _truncated(ids, cut, self._encoder.added_ids if special else 0)
        return self._encoder.surround(ids) if special else ids


def _prompts(body: CompletionBody) -> list[str] | list[list[object]]:
    """A prompt is a text, a list of ids, or a list of either."""
    if body.prompt_embeds is not None:
        raise Unrenderable("media", "a prompt of embeddings")
    prompt = body.prompt
    if isinstance(prompt, str):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise Unrenderable("bad_prompt", "no prompt")
    if isinstance(prompt[0], int):
        prompt = [prompt]
    kind = type(prompt[0])
    if kind not in (str, list) or not all(type(p) is kind and p for p in prompt):
        raise Unrenderable("bad_prompt", "prompts are texts, or lists of ids")
    return prompt


def _packed(ids: Sequence[object]) -> bytes:
    # A boolean would be packed as 0 or 1; no engine takes one.
    if not all(type(token_id) is int for token_id in ids):
        raise Unrenderable("bad_prompt", "token ids are integers")
    try:
        return pack_ids(ids)  # type: ignore[arg-type]  # checked above
    except ValueError as error:
        raise Unrenderable("bad_prompt", str(error)) from error


def _truncated(ids: bytes, cut: Truncation | None, added: int) -> bytes:
    if cut is None:
        return ids
    kept = 4 * max(cut.tokens - added, 0)
    if kept >= len(ids):
        return ids
    return ids[:kept] if cut.keep_first else ids[len(ids) - kept :]
