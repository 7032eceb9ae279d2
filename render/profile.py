"""The engines whose rendering is known, and what each of them has to say."""

from collections.abc import Mapping
from typing import Protocol

from render.body import ChatBody, Json
from render.content_format import ContentFormat
from render.conversation import Conversation
from render.harmony import TurnsOf
from render.model import Model
from render.profiles import sglang, trtllm, vllm
from render.rules import AnswerRules
from render.template import ChatTemplates


class Profile(Protocol):
    """What one engine makes of a chat body (`profiles/`)."""

    NAME: str
    ANSWERS: AnswerRules
    HARMONY: TurnsOf | None  # what it makes of a chat with gpt-oss, if that is known

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

    def parser_kwargs(self, body: ChatBody, defaults: Mapping[str, object]) -> Json:
        """The template variables that a reasoning parser is told of."""
        ...

    def refusal(self, model: Model) -> str | None:
        """Why the engine does not use this model's template for chats, if so."""
        ...


PROFILES: Mapping[str, Profile] = {
    vllm.NAME: vllm,
    trtllm.NAME: trtllm,
    sglang.NAME: sglang,
}
