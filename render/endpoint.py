"""What all render endpoints of one model share: its name, its limits, its prompts."""

from collections.abc import Sequence

import msgspec

from kvindex.blocks import unpack_ids
from render.body import Json
from render.errors import Unrenderable
from render.fields import TOKENIZING
from render.limits import Limits
from render.message_checks import media_part
from render.prompt import Prompt, Rendered
from render.refused import RenderRefused, bad_value, missing, unknown_model
from render.renderer import Renderer
from render.request import refused

UNTRUSTED = (
    "Chat template is passed with request, but --trust-request-chat-template is not "
    "set. Refused request with untrusted chat template."
)
MEDIA_OPTIONS = ("mm_processor_kwargs", "media_io_kwargs")


class Endpoint:
    """Prompts of one model as an endpoint makes them; raises RenderRefused.

    `names` are its served names, `limit` its context in tokens (None: not known).
    """

    def __init__(
        self,
        renderer: Renderer,
        *,
        names: Sequence[str],
        limit: int | None,
        trust_template: bool,
    ) -> None:
        self.limit = limit
        self.name = names[0]
        self._names = names
        self._renderer = renderer
        self._trust_template = trust_template
        self._longest_token = renderer.longest_token

    def check_model(self, asked: object) -> None:
        """No name, or an empty one, is the first of the names."""
        if asked and asked not in self._names:
            raise unknown_model(asked, self._names)

    def limits(self, output: int | None, output_name: str) -> Limits | None:
        """For a request that asks for so many tokens; None if nothing is limited."""
        if self.limit is None:
            return None
        return Limits(
            total=self.limit,
            output=output or 0,
            output_name=output_name,
            longest_token=self._longest_token,
        )

    def chat_prompt(self, body: Json, fields: Json) -> Prompt:
        """The prompt of a chat body that has been checked, with its typed fields."""
        template = self._request_template(fields)
        self._check_ids_field(body)
        for name in MEDIA_OPTIONS:
            if fields.get(name):
                raise RenderRefused(
                    f"{name} is passed with request, but --trust-request-mm-kwargs is "
                    "not set. Refused request with untrusted arguments."
                )
        own = {name: value for name, value in body.items() if name != "chat_template"}
        own |= {name: fields[name] for name in TOKENIZING if name in {*own} & {*fields}}
        try:
            prompt = self._renderer.chat_prompt(own, chat_template=template)
        except Unrenderable as error:
            if body.get("messages") == []:
                words = "Cannot apply chat template to an empty conversation"
                raise RenderRefused(words) from error
            media = media_part(body.get("messages"))
            raise refused(error, self.name, media) from error
        if prompt.given is not None:
            self._check_given(unpack_ids(prompt.given))
        return prompt

    def text_prompt(self, request: Json, fields: Json) -> Prompt:
        """The prompt of a body whose `prompt` is one text, also an empty one."""
        if "prompt" not in request:
            raise missing("body.prompt", request)
        return Prompt(text=fields["prompt"], special=fields["add_special_tokens"])

    def fitted(
        self, prompt: Prompt, limits: Limits | None, fields: Json, truncate: int | None
    ) -> Prompt:
        """The prompt cut to what fits, if `truncate` is -1; raises RenderRefused.

        Ids of a chat are taken as they are given.
        """
        rules = self._renderer.answers
        if limits is None or prompt.uncut:
            return prompt
        limits.check_request(truncate if rules.sets_tokenizing else None)
        if truncate != -1 or not rules.sets_tokenizing:
            return prompt
        side = fields.get("truncation_side")
        keep_first = rules.keeps_first if side is None else side == "right"
        cut = limits.truncation(keep_first=keep_first)
        return msgspec.structs.replace(prompt, cut=cut)

    def encode(
        self, prompt: Prompt, limits: Limits | None, *, empty: bool = False
    ) -> Rendered:
        """The ids, within the limits; `empty` allows for none."""
        if limits is not None and prompt.text is not None and prompt.cut is None:
            limits.check_text(prompt.text)
        try:
            rendered = self._renderer.encode(prompt)
        except Unrenderable as error:
            raise refused(error, self.name) from error
        if limits is not None:
            limits.check_tokens(len(rendered))
        if not rendered.token_ids and not empty:
            raise RenderRefused("No token_ids rendered")
        return rendered

    def room(self, rendered: Rendered) -> int | None:
        """The tokens that are left for the answer."""
        return None if self.limit is None else self.limit - len(rendered)

    def offsets(self, prompt: Prompt, fields: Json) -> list[tuple[int, int]] | None:
        """Where each token is in the text, if that is asked for."""
        if not fields.get("return_token_offsets"):
            return None
        try:
            return self._renderer.offsets(prompt)
        except Unrenderable as error:
            raise refused(error, self.name) from error

    def _request_template(self, fields: Json) -> str | None:
        kwargs = fields.get("chat_template_kwargs") or {}
        own: str | None = fields.get("chat_template")
        if own is None and kwargs.get("chat_template") is None:
            return None
        if not self._trust_template:
            raise RenderRefused(UNTRUSTED)
        return own or None

    def _check_ids_field(self, body: Json) -> None:
        """Ids a client gives itself are ids; with media or `echo` they are ignored."""
        value: object = body
        path = self._renderer.answers.ids_field
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if value is None or body.get("echo") or media_part(body.get("messages")):
            return
        if (
            not isinstance(value, list)
            or not value
            or not all(type(token_id) is int and token_id >= 0 for token_id in value)
        ):
            shown = path[0] + "".join(f"['{name}']" for name in path[1:])
            raise bad_value(
                f"`{shown}` must be a non-empty list of non-negative integers.",
                ".".join(path),
            )
        self._check_vocabulary(max(value), ".".join(path))

    def _check_vocabulary(self, highest: int, param: str) -> None:
        size = max(
            self._renderer.model.vocabulary_size or 0, self._renderer.vocabulary_size
        )
        if highest >= size:
            raise bad_value(f"Token id {highest} is out of vocabulary", param)

    def _check_given(self, ids: Sequence[int]) -> None:
        if self.limit is not None and len(ids) > self.limit:
            raise RenderRefused(
                f"Input length ({len(ids)}) exceeds model's maximum context length "
                f"({self.limit})."
            )
