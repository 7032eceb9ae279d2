"""One model's render endpoints, without the HTTP: bodies in, JSON-ready answers out.

They answer as the engine of the renderer's profile does, refusals included.
"""

import secrets
import time
from collections.abc import Callable, Sequence

from kvindex.blocks import unpack_ids
from render import fields as tables
from render.body import Json
from render.checks import check_chat, check_completion
from render.derender_service import Derendered
from render.endpoint import Endpoint
from render.errors import Unrenderable
from render.fields import Field, read_fields
from render.message_checks import (
    check_known,
    check_messages,
    check_tool_parser,
    check_tools,
)
from render.options import RenderOptions
from render.prompt import Prompt, Rendered
from render.reasoning import reasoning_ended
from render.refused import RenderRefused, bad_value
from render.renderer import Renderer
from render.request import read_request, refused
from render.responses import chat_body
from render.responses_checks import check_responses
from render.sampling import chat_sampling, completion_sampling, responses_sampling
from render.schema import rendered_request
from render.tokenize_request import tokenize_prompt
from render.tokens import detokenized, models, read_tokens, tokenized

NO_BEAM_SEARCH = "Beam search is not supported by the render endpoint"
NO_SUFFIX = "suffix is only supported for models with FIM completion rendering"
MAX_PROMPTS = 4096  # of one completion body


class RenderService(Derendered):
    """Answers render requests; safe to call from several threads.

    Every method raises RenderRefused, and nothing else, for what it does not render.
    """

    def __init__(
        self,
        renderer: Renderer,
        options: RenderOptions,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self.renderer = renderer
        self.options = options
        self._rules = renderer.answers
        efforts = self._rules.efforts
        effort = Field("text", choices=efforts) if efforts else Field("any")
        self._chat_fields = {**tables.CHAT, "reasoning_effort": effort}
        self._clock, self._created = clock, int(clock())
        self._new_id = new_id or self._random_id
        self._endpoint = Endpoint(
            renderer,
            names=options.served_model_names,
            limit=options.max_model_len or renderer.model.max_length,
            trust_template=options.trust_request_chat_template,
        )

    def chat(
        self, body: bytes, *, request_id: str | None = None, prompt_text: bool = False
    ) -> Json:
        """`POST /v1/chat/completions/render`.

        `request_id` is the `X-Request-Id` header; `prompt_text` adds the text.
        """
        request = read_request(body, self._rules.chat_fields)
        fields = self._checked_chat(request)
        output, name = fields["max_tokens"], "max_tokens"
        if fields["max_completion_tokens"] is not None:
            output, name = fields["max_completion_tokens"], "max_completion_tokens"
        limits = self._endpoint.limits(output, name)
        prompt = self._endpoint.chat_prompt(request, fields)
        if prompt.given is None:  # ids that are given are taken as they are
            truncate = fields["truncate_prompt_tokens"]
            prompt = self._endpoint.fitted(prompt, limits, fields, truncate)
        rendered = self._endpoint.encode(prompt, limits)
        room = self._endpoint.room(rendered)
        sampling = chat_sampling(
            fields,
            max_tokens=_least(output, room),
            parsed=self.options.parses,
            tool_call_parser=self.options.tool_call_parser,
        )
        return self._answer(
            "chat",
            "chatcmpl-" + (request_id or fields["request_id"] or self._new_id()),
            (prompt, rendered),
            (request, fields, sampling),
            reasoning=self._reasoning(rendered, fields),
            parser_kwargs=self._parser_kwargs(request),
            prompt_text=prompt_text or bool(fields["return_prompt_text"]),
        )

    def completions(
        self, body: bytes, *, request_id: str | None = None, prompt_text: bool = False
    ) -> list[Json]:
        """`POST /v1/completions/render`: one item for each prompt."""
        request = read_request(body, self._rules.completion_fields)
        check_completion(request)
        fields = read_fields(request, tables.COMPLETION)
        if fields["max_tokens"] is None:
            fields["max_tokens"] = tables.DEFAULT_MAX_TOKENS
        self._endpoint.check_model(fields["model"])
        if fields["use_beam_search"]:
            raise RenderRefused(NO_BEAM_SEARCH)
        if fields["suffix"] is not None:
            raise RenderRefused(NO_SUFFIX, param="suffix")
        limits = self._endpoint.limits(fields["max_tokens"], "max_tokens")
        typed = {name: fields[name] for name in tables.TOKENIZING if name in request}
        prompts = self._completion_prompts({**request, **typed})
        id_ = "cmpl-" + (request_id or fields["request_id"] or self._new_id())
        numbered = self._rules.always_numbered or len(prompts) > 1
        truncate = fields["truncate_prompt_tokens"]
        answers = []
        for index, uncut in enumerate(prompts):
            prompt = self._endpoint.fitted(uncut, limits, fields, truncate)
            rendered = self._endpoint.encode(prompt, limits)
            room = self._endpoint.room(rendered)
            sampling = completion_sampling(
                fields, max_tokens=_least(fields["max_tokens"], room)
            )
            own = unpack_ids(prompt.given) if prompt.given is not None else prompt.text
            answer = self._answer(
                "completion",
                f"{id_}-{index}" if numbered else id_,
                (prompt, rendered),
                ({**request, "prompt": own}, fields, sampling),
                prompt_text=prompt_text,
            )
            answers.append(answer)
        return answers

    def responses(
        self, body: bytes, *, request_id: str | None = None, prompt_text: bool = False
    ) -> Json:
        """`POST /v1/responses/render`, for requests that need nothing stored."""
        request = read_request(body)
        fields = self._checked_responses(request)
        output = fields["max_output_tokens"]
        limits = self._endpoint.limits(output, "max_output_tokens")
        try:
            chat = chat_body(request)
        except Unrenderable as error:
            raise refused(error, self._endpoint.name) from error
        prompt = self._endpoint.chat_prompt(chat, fields)
        truncate = -1 if fields["truncation"] == "auto" else None
        if prompt.given is None:
            prompt = self._endpoint.fitted(prompt, limits, fields, truncate)
        rendered = self._endpoint.encode(prompt, limits)
        sampling = responses_sampling(
            fields,
            max_tokens=_least(output, self._endpoint.room(rendered)),
            parsed=self.options.parses,
            tool_call_parser=self.options.tool_call_parser,
        )
        id_ = request_id or self._new_id()
        return self._answer(
            "response",
            fields["request_id"] or f"resp_{id_}",
            (prompt, rendered),
            (request, fields, sampling),
            parser_kwargs=self._parser_kwargs(chat),
            prompt_text=prompt_text,
        )

    def tokenize(self, body: bytes) -> Json:
        """`POST /tokenize`, of a prompt or of messages."""
        request = read_request(body)
        prompt, fields = tokenize_prompt(self._endpoint, request, self._rules)
        rendered = self._endpoint.encode(prompt, None, empty=True)
        return tokenized(
            self.renderer,
            rendered,
            self._endpoint.limit,
            spelled=bool(fields["return_token_strs"]),
        )

    def detokenize(self, body: bytes) -> Json:
        """`POST /detokenize`."""
        request = read_request(body)
        fields, tokens = read_tokens(request)
        self._endpoint.check_model(fields["model"])
        return detokenized(self.renderer, tokens)

    def models(self) -> Json:
        """`GET /v1/models`."""
        names = self.options.served_model_names
        return models(self.renderer, names, self._endpoint.limit, self._created)

    def _checked_chat(self, request: Json) -> Json:
        """The fields of a chat body, if it may be rendered."""
        check_chat(request)
        check_messages(request)
        if self._rules.strict_messages:
            check_known(request["messages"])
        check_tools(request.get("tools"))
        fields = read_fields(request, self._chat_fields)
        self._endpoint.check_model(fields["model"])
        if fields["use_beam_search"]:
            raise RenderRefused(NO_BEAM_SEARCH)
        if self._rules.tools_need_parser and not self.options.tool_call_parser:
            check_tool_parser(fields)
        return fields

    def _checked_responses(self, request: Json) -> Json:
        """The fields of a responses body, if it may be rendered."""
        if request.get("previous_response_id") is not None:
            raise RenderRefused(
                "previous_response_id is not supported: no response is stored here",
                type="invalid_request_error",
                param="previous_response_id",
            )
        check_responses(request)
        fields = read_fields(request, tables.RESPONSES)
        if fields["reasoning"] is not None:
            efforts = Field("text", choices=tables.EFFORTS)
            read_fields(fields["reasoning"], {"effort": efforts}, "body.reasoning")
        self._endpoint.check_model(fields["model"])
        return fields

    def _completion_prompts(self, request: Json) -> Sequence[Prompt]:
        try:
            prompts = self.renderer.completion_prompts(request)
        except Unrenderable as error:
            raise refused(error, self._endpoint.name) from error
        if len(prompts) > MAX_PROMPTS:
            raise bad_value(f"More than {MAX_PROMPTS} prompts.", "prompt", len(prompts))
        return prompts

    def _reasoning(self, rendered: Rendered, fields: Json) -> bool | None:
        if not fields["include_reasoning"]:
            return True
        parser = self.options.reasoning_parser
        if parser is None:
            return self._rules.always_parsed or None
        begun = self.renderer.answer_so_far(rendered.token_ids)
        ended = reasoning_ended(begun, parser)
        return self._rules.unsaid_reasoning if ended is None else ended

    def _parser_kwargs(self, chat: Json) -> Json | None:
        if self.options.reasoning_parser is None and not self._rules.always_parsed:
            return None
        known = {name: value for name, value in chat.items() if name != "chat_template"}
        try:
            return {"chat_template_kwargs": self.renderer.parser_kwargs(known)}
        except Unrenderable as error:
            raise refused(error, self._endpoint.name) from error

    def _answer(
        self,
        kind: str,
        id_: str,
        rendering: tuple[Prompt, Rendered],
        asked: tuple[Json, Json, Json],
        *,
        reasoning: bool | None = None,
        parser_kwargs: Json | None = None,
        prompt_text: bool,
    ) -> Json:
        prompt, rendered = rendering
        request, fields, sampling = asked
        answer = rendered_request(
            kind,
            request_id=id_,
            token_ids=unpack_ids(rendered.token_ids),
            token_offsets=self._endpoint.offsets(prompt, fields),
            sampling_params=sampling,
            fields=fields,
            reasoning_ended=reasoning,
            reasoning_parser_kwargs=parser_kwargs,
            request=request,
            dialect=self.options.dialect,
        )
        return {**answer, "prompt_text": prompt.whole_text} if prompt_text else answer

    def _random_id(self) -> str:
        return secrets.token_hex(self._rules.id_digits // 2)


def _least(asked: int | None, room: int | None) -> int | None:
    """What may be generated: what is asked for, within what is left of the context."""
    known = [value for value in (asked, room) if value is not None]
    return min(known) if known else None
