"""Renderer: one model, one engine profile; OpenAI request bodies to token ids.

It renders for routing: the ids a worker would use if it accepts the request. Whether
the worker does (lengths, parsers, unknown roles) is the worker's decision. No sockets
and no event loop; safe to call from several threads.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from kvindex.blocks import unpack_ids
from render.body import (
    ChatBody,
    CompletionBody,
    Json,
    Truncation,
    flag,
    prompts,
    read_chat,
    read_completion,
    read_object,
    truncation,
)
from render.content_format import CONTENT_FORMATS, ContentFormat
from render.conversation import Conversation
from render.derender import Derendering
from render.encoder import Encoder
from render.encoding import prompt_ids, prompt_offsets
from render.errors import Unrenderable, check_one_of
from render.harmony import (
    Harmony,
    answer_rules,
    harmony_prompt,
    load_harmony,
    written_marks,
)
from render.harmony_library import HarmonyUnusable
from render.model import Model, load_model
from render.profile import PROFILES, Profile
from render.prompt import Prompt, Rendered, packed
from render.responses import chat_body
from render.rules import AnswerRules
from render.switches import SWITCHES, switched, switched_globals
from render.template import ChatTemplates

MiB = 1024 * 1024
TOKENIZER_MODES = ("auto", "hf", "fast")  # all of them the fast tokenizer


class Renderer(Derendering):
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
        switches: Collection[str] = (),
        harmony: Harmony | HarmonyUnusable | None = None,
    ) -> None:
        self.model = model
        self._switches = frozenset(switches)
        self.profile = profile.NAME
        self._profile = profile
        self._answers = answer_rules(profile.ANSWERS, harmony)
        self._shared_harmony = harmony
        self._harmony = None if profile.HARMONY is None else harmony
        self._refusal = None if self._harmony else profile.refusal(model)
        self._templates = templates
        self._encoder = encoder
        self.default_chat_template_kwargs = defaults
        self._content_format = content_format

    @classmethod
    def load(
        cls,
        path_or_id: str | Path,
        *,
        profile: str = "vllm",
        encoder: str = "auto",
        chat_template: str | None = None,
        default_chat_template_kwargs: Mapping[str, object] | None = None,
        chat_template_content_format: str = "auto",
        switches: Collection[str] = (),
        tokenizer: str | Path | None = None,
        tokenizer_mode: str = "auto",
        revision: str | None = None,
        segment_cache_bytes: int = 64 * MiB,
        verify_encoder: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> "Renderer":
        """Load a model directory, or a hub id from the local cache; takes a second.

        The chat template options are those of the worker, `switches` names what its
        release of transformers does to messages (`switches.py`). `encoder` is "auto",
        "fastokens" or "tokenizers", `verify_encoder` the share of texts that the
        reference encodes again (`verify.py`); `clock` (epoch seconds) is what prompts
        with the date in them read. Raises ModelNotFound.
        """
        check_one_of("profile", profile, PROFILES)
        check_one_of("content format", chat_template_content_format, CONTENT_FORMATS)
        check_one_of("tokenizer mode", tokenizer_mode, TOKENIZER_MODES)
        for switch in switches:
            check_one_of("switch", switch, SWITCHES)
        model = load_model(path_or_id, tokenizer=tokenizer, revision=revision)
        templates = ChatTemplates.load(model, chat_template=chat_template, clock=clock)
        loaded = Encoder.load(
            model.tokenizer_file,
            encoder=encoder,
            cache_bytes=segment_cache_bytes,
            written=templates.sources() + written_marks(model),
            verified=verify_encoder,
        )
        return cls(
            model=model,
            profile=PROFILES[profile],
            templates=templates,
            encoder=loaded,
            harmony=load_harmony(model, loaded, clock=clock),
            defaults=default_chat_template_kwargs or {},
            content_format=CONTENT_FORMATS[chat_template_content_format],
            switches=switches,
        )

    def with_profile(self, profile: str) -> "Renderer":
        """The same model as another engine renders it; raises ModelNotFound."""
        check_one_of("profile", profile, PROFILES)
        return Renderer(
            model=self.model,
            profile=PROFILES[profile],
            templates=self._templates,
            encoder=self._encoder,
            defaults=self.default_chat_template_kwargs,
            content_format=self._content_format,
            switches=self._switches,
            harmony=self._shared_harmony,
        )

    @property
    def encoder_name(self) -> str:
        """The library that encodes: "fastokens" or "tokenizers"."""
        return self._encoder.name

    @property
    def encoder_checks(self) -> tuple[int, int]:
        """How many texts were encoded again by the reference, and how many wrongly."""
        return self._encoder.checked, self._encoder.mismatches

    @property
    def server_template(self) -> str | None:
        """The source of the chat template given at load, if one was."""
        return self._templates.given_source

    @property
    def switches(self) -> list[str]:
        """What newer releases of transformers do, as done here (`switches.py`)."""
        return sorted(self._switches)

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

    def render_responses(self, body: bytes | Mapping[str, object]) -> Rendered:
        """The prompt of a self-contained responses body; raises Unrenderable."""
        return self.encode(self.chat_prompt(chat_body(read_object(body))))

    def chat_prompt(
        self, body: bytes | Mapping[str, object], *, chat_template: str | None = None
    ) -> Prompt:
        """The text of a chat completion body, not yet encoded; raises Unrenderable.

        `chat_template` is a template of the request's own that is trusted.
        """
        chat = read_chat(body)
        ids = self._profile.forwarded_ids(chat)
        if ids is not None:
            return Prompt(given=packed(ids))
        cut, special = self._tokenizing(chat, special=False)
        if self._refusal is not None:
            raise Unrenderable("model_type", self._refusal)
        start = time.perf_counter()
        if self._harmony is not None:
            prompt = harmony_prompt(self._harmony, self._profile.HARMONY, chat)
        else:
            conversation = self._conversation(chat, chat_template)
            prompt = Prompt(
                text=conversation.text(self.model.special_tokens),
                special=special,
                cut=cut,
                appended=conversation.appended,
            )
        took = time.perf_counter() - start
        return msgspec.structs.replace(prompt, template_s=took)

    def _conversation(self, chat: ChatBody, chat_template: str | None) -> Conversation:
        templates = self._templates
        if chat_template is not None:
            templates = templates.overridden(chat_template)
        conversation = self._profile.prepare(
            chat,
            templates,
            content_format=self._content_format,
            defaults=self.default_chat_template_kwargs,
        )
        if not self._switches:
            return conversation
        return msgspec.structs.replace(
            conversation,
            messages=switched(conversation.messages, self._switches),
            replaced=switched_globals(self._switches),
        )

    def completion_prompts(self, body: bytes | Mapping[str, object]) -> list[Prompt]:
        """Each prompt of a completion body, not yet encoded; raises Unrenderable."""
        completion = read_completion(body)
        cut, special = self._tokenizing(completion, special=True)
        return [
            Prompt(text=prompt, special=special, cut=cut)
            if isinstance(prompt, str)
            else Prompt(given=packed(prompt), cut=cut)
            for prompt in prompts(completion)
        ]

    def encode(self, prompt: Prompt) -> Rendered:
        """The ids of a prompt; raises Unrenderable."""
        start = time.perf_counter()
        ids = prompt_ids(self._encoder, prompt)
        return Rendered(
            token_ids=ids,
            profile=self.profile,
            text=prompt.whole_text,
            template_s=prompt.template_s,
            tokenize_s=time.perf_counter() - start,
        )

    def offsets(self, prompt: Prompt) -> list[tuple[int, int]] | None:
        """Start and end of each id in the text, in characters; None for ids of no text.

        Raises Unrenderable.
        """
        return prompt_offsets(self._encoder, prompt)

    def answer_so_far(self, token_ids: bytes) -> str:
        """The text after the last special token: what the answer begins with."""
        ids = unpack_ids(token_ids)
        start = len(ids)
        while start > 0 and ids[start - 1] not in self._encoder.special_ids:
            start -= 1
        return self._encoder.decode(ids[start:], skip_special_tokens=False)

    def spelling(self, token_id: int) -> str:
        """The vocabulary's own spelling of an id; empty for one it does not know."""
        return self._encoder.spelling(token_id)

    @property
    def longest_token(self) -> int:
        """The length of the longest token, in characters; slow the first time."""
        return self._encoder.longest_token

    def parser_kwargs(self, body: Mapping[str, object]) -> Json:
        """The template variables a reasoning parser is told; raises Unrenderable."""
        defaults = self.default_chat_template_kwargs
        return self._profile.parser_kwargs(read_chat(body), defaults)

    @property
    def answers(self) -> AnswerRules:
        """The engine's ways to answer a render request."""
        return self._answers

    def detokenize(
        self, token_ids: bytes | Sequence[int], *, skip_special_tokens: bool = True
    ) -> str:
        """The text of ids; raises ValueError if these are no ids."""
        return self._encoder.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def _tokenizing(
        self, body: ChatBody | CompletionBody, *, special: bool
    ) -> tuple[Truncation | None, bool]:
        """How a body wants to be cut, and whether special tokens are added."""
        if not self.answers.sets_tokenizing:
            return None, special
        cut = truncation(body, keep_first=self.answers.keeps_first)
        return cut, flag(body.add_special_tokens, "add_special_tokens", default=special)
