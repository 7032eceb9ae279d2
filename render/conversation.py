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
    the prompt and is encoded apart from it.
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

    def text(self, special_tokens: Mapping[str, str]) -> str:
        """The prompt; raises Unrenderable.

        The rule for an open last message is transformers': a mark is appended to it,
        and the text is cut where the mark comes out.
        """
        messages = self.messages
        if self.continue_final_message:
            messages = [*messages[:-1], _marked(messages[-1])]
        context = {
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
        return _cut_at_mark(text) if self.continue_final_message else text


def _marked(message: Json) -> Json:
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": content + MARK}
    parts = list(content or [])
    for index in reversed(range(len(parts))):
        if "text" in parts[index]:
            parts[index] = {**parts[index], "text": parts[index]["text"] + MARK}
            return {**message, "content": parts}
    raise Unrenderable("template_error", "the final message has no text to continue")


def _cut_at_mark(text: str) -> str:
    end = text.rfind(MARK.strip())
    if end < 0:
        raise Unrenderable("template_error", "the template drops the final message")
    # A template that trims its messages has trimmed the mark's space too.
    trimmed = not text.startswith(MARK, end)
    return text[:end].rstrip() if trimmed else text[:end]
