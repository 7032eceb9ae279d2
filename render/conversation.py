"""A conversation as one engine shows it to its template, and its text."""

from collections.abc import Mapping

import msgspec

from render.body import Json
from render.errors import Unrenderable
from render.template import ChatTemplate

# What is looked for in the text to find where the final message ends.
MARK = "CONTINUE_FINAL_MESSAGE_TAG "

# Parameters of `apply_chat_template` itself: never variables of a template.
TEMPLATE_PARAMETERS = frozenset(
    {
        "conversation",
        "messages",
        "continue_final_message",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "sanitize_control_tokens",
        "tokenizer_kwargs",
    }
)


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A template with everything it is rendered with.

    `variables` are the further variables the template reads; `continue_final_message`
    leaves the last message open, for the model to go on with. `bare_tools` are
    what a template is given that fails with the tools; `appended` is text that follows
    the prompt and is encoded apart from it. `replaced` are jinja2's own globals that
    a release of transformers replaces (`switches.py`).
    """

    template: ChatTemplate
    messages: list[Json]
    tools: list[Json] | None
    documents: list[Json] | None
    add_generation_prompt: bool
    continue_final_message: bool
    variables: Mapping[str, object]
    bare_tools: list[Json] | None = None
    appended: str = ""
    replaced: Mapping[str, object] = {}

    def text(self, special_tokens: Mapping[str, str]) -> str:
        """The prompt; raises Unrenderable.

        The rule for an open last message is transformers': a mark is appended to it,
        and the text is cut where the mark comes out.
        """
        messages = self.messages
        final = ""
        if self.continue_final_message:
            marked, final = _marked(messages[-1])
            messages = [*messages[:-1], marked]
        context = {
            **self.replaced,
            **special_tokens,
            **self.variables,
            "messages": messages,
            "tools": self.tools,
            "documents": self.documents,
            "add_generation_prompt": self.add_generation_prompt,
        }
        try:
            text = self.template.render(context)
        except Unrenderable:
            if self.bare_tools is None:
                raise
            text = self.template.render({**context, "tools": self.bare_tools})
        return _cut_at_mark(text, final) if self.continue_final_message else text


def _marked(message: Json) -> tuple[Json, str]:
    """The message with the mark behind its text, and that text."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": content + MARK}, content
    parts = list(content or [])
    for index in reversed(range(len(parts))):
        if "text" in parts[index]:
            final: str = parts[index]["text"]
            parts[index] = {**parts[index], "text": final + MARK}
            return {**message, "content": parts}, final
    raise Unrenderable("template_error", "the final message has no text to continue")


def _cut_at_mark(text: str, final: str) -> str:
    end = text.rfind(MARK.strip())
    # A template may also rewrite it: cut reasoning out of it, for one.
    if end < 0 or final.strip() not in text:
        raise Unrenderable("template_error", "the template drops the final message")
    # A template that trims its messages has trimmed the mark's space too.
    trimmed = not text.startswith(MARK, end)
    return text[:end].rstrip() if trimmed else text[:end]
