"""The prompt of a `/tokenize` body: of one text, or of messages."""

from render import fields as tables
from render.body import Json
from render.checks import check_generation_prompt
from render.endpoint import MEDIA_OPTIONS, Endpoint
from render.fields import read_fields
from render.message_checks import check_known, check_messages, check_tools
from render.prompt import Prompt
from render.refused import RenderRefused, bad_value
from render.rules import AnswerRules


def tokenize_prompt(
    endpoint: Endpoint, request: Json, rules: AnswerRules
) -> tuple[Prompt, Json]:
    """The prompt and the typed fields of the body; raises RenderRefused."""
    check_generation_prompt(request)
    if not _is_chat(request):
        fields = read_fields(request, tables.TOKENIZE_TEXT)
        endpoint.check_model(fields["model"])
        _check_media(request)
        return endpoint.text_prompt(request, fields), fields
    check_messages(request)
    chat = {
        name: value
        for name, value in request.items()
        if name in tables.TOKENIZE_CHAT or name == "messages"
    }
    # This route does not know the older name of the reasoning.
    chat["messages"] = [
        {name: value for name, value in message.items() if name != "reasoning_content"}
        for message in request["messages"]
    ]
    if rules.strict_messages:
        check_known(chat["messages"])
    check_tools(request.get("tools"))
    fields = read_fields(request, tables.TOKENIZE_CHAT)
    endpoint.check_model(fields["model"])
    _check_media(request)
    return endpoint.chat_prompt(chat, fields), fields


def _check_media(request: Json) -> None:
    for name in MEDIA_OPTIONS:
        if request.get(name):
            raise bad_value(f"Per-request {name} are disabled by default.", name)


def _is_chat(request: Json) -> bool:
    """Whether a body is of messages; one that has both is, if these are well."""
    if "messages" in request and isinstance(request.get("prompt"), str):
        try:
            check_messages(request)
            read_fields(request, tables.TOKENIZE_CHAT)
        except RenderRefused:
            return False
    return "messages" in request
