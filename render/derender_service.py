"""The derender endpoints of one model, without the HTTP: bodies in, answers out.

They answer as vLLM 0.32 and 0.33 do, but for a chat without its request: that is plain
text, as their page promises, where vLLM refuses it if it has a parser.
"""

from collections.abc import Callable, Sequence

from render.body import Json
from render.derender import Derenderer, Parsers
from render.derender_answers import (
    chat_answer,
    chat_choice,
    completion_answer,
    usage,
)
from render.derender_prompt import Prompt
from render.derender_request import (
    WHOLE_NUMBER,
    Bounds,
    read_chat_request,
    read_completion_request,
    read_generated,
    read_ids,
)
from render.derender_state import Step, check_step, read_state, stepped
from render.derender_stream import ChatStream
from render.endpoint import Endpoint
from render.fields import Field, read_fields
from render.options import RenderOptions
from render.refused import RenderRefused, not_valid
from render.renderer import Renderer
from render.request import read_request

COMMON = {
    "model": Field("text"),
    "stream": Field("flag", False),
}
COUNT = {"prompt_tokens": WHOLE_NUMBER}
COUNTS = {"prompt_tokens": Field("list")}
NEEDS_PROMPT = (
    "prompt_token_ids is required when a tool or reasoning parser is configured. "
    "Without it parse_delta cannot tell whether the prompt left reasoning open (e.g. a "
    "chat template that pre-opens <think>) and would misclassify reasoning content as "
    "plain content."
)


class Derendered:
    """The derender endpoints of a RenderService.

    Every method raises RenderRefused, and nothing else, for what it does not derender.
    """

    renderer: Renderer
    options: RenderOptions
    _endpoint: Endpoint
    _clock: Callable[[], float]

    def derender_chat(self, body: bytes) -> Json:
        """`POST /v1/chat/completions/derender`, of a whole answer or of a chunk."""
        body_ = read_request(body)
        if body_.get("stream") is True:
            return self._chat_step(body_)
        _check_there(body_, "Chat", "generate_response")
        fields = read_fields(body_, {**COMMON, **COUNT})
        response = read_generated(
            body_["generate_response"], "body.DerenderChatRequest.generate_response"
        )
        request = read_chat_request(body_.get("chat_request"))
        prompt = read_ids(body_.get("prompt_token_ids"), "body.prompt_token_ids")
        self._endpoint.check_model(fields["model"])
        bounds = self._bounds()
        bounds.check_responses([response])
        bounds.check_prompt(prompt)
        bounds.check_decodable(response, "generate_response")
        given = prompt if prompt is not None else response["prompt_token_ids"]
        before = Prompt(given)
        derenderer = self.derenderer()
        asked = derenderer.asked(request, chat=True)
        choices = [
            chat_choice(
                derenderer.chat_choice(choice, asked, before),
                choice,
                request,
                parsed=asked.parsed,
            )
            for choice in response["choices"]
        ]
        counts = usage(fields["prompt_tokens"] or 0, _generated([response]))
        model = fields["model"] or self._endpoint.name
        return chat_answer(response, choices, counts, model, int(self._clock()))

    def derender_completions(self, body: bytes) -> Json:
        """`POST /v1/completions/derender`: answers to several prompts, or a chunk."""
        body_ = read_request(body)
        if body_.get("stream") is True:
            return self._completion_step(body_)
        _check_there(body_, "Completion", "generate_responses")
        responses = self._responses(body_)
        fields = read_fields(body_, {**COMMON, **COUNTS})
        fields["prompt_tokens"] = read_ids(
            fields["prompt_tokens"], "body.prompt_tokens"
        )
        request = read_completion_request(body_.get("completion_request"))
        prompts = self._prompts(body_, responses)
        _check_lengths(body_, fields["prompt_tokens"], len(responses))
        self._endpoint.check_model(fields["model"])
        if not responses:
            raise RenderRefused("generate_responses must not be empty")
        bounds = self._bounds()
        bounds.check_responses(responses)
        for number, response in enumerate(responses):
            bounds.check_prompt(prompts[number])
            where = f" in response {response['request_id']}"
            place = f"generate_responses.{number}"
            bounds.check_decodable(response, place, where)
        derenderer = self.derenderer()
        asked = derenderer.asked(request, chat=False)
        choices = [
            derenderer.completion_choice(choice, asked, before)
            for response, before in zip(responses, map(Prompt, prompts), strict=True)
            for choice in response["choices"]
        ]
        numbered = [{"index": i, **choice} for i, choice in enumerate(choices)]
        counts = usage(sum(fields["prompt_tokens"] or ()), _generated(responses))
        model = fields["model"] or self._endpoint.name
        now = int(self._clock())
        return completion_answer(responses, numbered, counts, model, now)

    def derender_stream(self, opening: Json) -> ChatStream:
        """A chat's stream in one pass. `opening` has the fields of a derender body."""
        fields = read_fields(opening, {**COMMON, **COUNT})
        request = read_chat_request(opening.get("chat_request"))
        prompt = read_ids(opening.get("prompt_token_ids"), "body.prompt_token_ids")
        self._endpoint.check_model(fields["model"])
        bounds = self._bounds()
        bounds.check_prompt(prompt)
        return ChatStream(
            self.derenderer(),
            request,
            bounds=bounds,
            model=fields["model"] or self._endpoint.name,
            created=int(self._clock()),
            prompt_ids=prompt,
            prompt_tokens=fields["prompt_tokens"],
        )

    @property
    def limit(self) -> int | None:
        """The context in tokens, as far as it is known."""
        return self._endpoint.limit

    @property
    def name(self) -> str:
        """The first of its served names."""
        return self._endpoint.name

    def derenderer(self) -> Derenderer:
        """What derenders this model's answers, with the parsers of the options."""
        options = self.options
        parsers = Parsers(options.reasoning_parser, options.tool_call_parser)
        if self.renderer.model.model_type == "gpt_oss":
            parsers = Parsers("openai_gptoss", "openai")
        return self.renderer.derenderer(parsers)

    def _chat_step(self, body: Json) -> Json:
        request = read_chat_request(body.get("chat_request"))
        prompt = read_ids(body.get("prompt_token_ids"), "body.prompt_token_ids")
        derenderer = self.derenderer()
        asked = derenderer.asked(request, chat=True)
        step = self._step(body, "Chat", request, prompt)
        if asked.parsed and prompt is None:
            raise RenderRefused(NEEDS_PROMPT)
        check_step(step, self._bounds())
        return stepped(derenderer, asked, step, chat=True)

    def _completion_step(self, body: Json) -> Json:
        request = read_completion_request(body.get("completion_request"))
        prompt = read_ids(body.get("prompt_token_ids"), "body.prompt_token_ids")
        derenderer = self.derenderer()
        asked = derenderer.asked(request, chat=False)
        step = self._step(body, "Completion", request, prompt)
        check_step(step, self._bounds())
        return stepped(derenderer, asked, step, chat=False)

    def _step(
        self, body: Json, kind: str, request: Json | None, prompt: list[int] | None
    ) -> Step:
        where = f"body.Derender{kind}StreamRequest"
        if "generate_chunk" not in body:
            raise not_valid(
                "missing", f"{where}.generate_chunk", "Field required", body
            )
        fields = read_fields(body, {**COMMON, **COUNT})
        chunk = read_generated(
            body["generate_chunk"], f"{where}.generate_chunk", stream=True
        )
        self._endpoint.check_model(fields["model"])
        seeds = chunk["prompt_token_ids"] if prompt is None else prompt
        return Step(
            chunk=chunk,
            state=read_state(body.get("stream_state")),
            request=request,
            prompt_ids=seeds,
            model=fields["model"] or self._endpoint.name,
            prompt_tokens=fields["prompt_tokens"],
            created=int(self._clock()),
        )

    def _responses(self, body: Json) -> list[Json]:
        given = body["generate_responses"]
        where = "body.DerenderCompletionRequest.generate_responses"
        if not isinstance(given, list):
            raise not_valid("list_type", where, "Input should be a valid list", given)
        return [read_generated(one, f"{where}.{i}") for i, one in enumerate(given)]

    def _prompts(self, body: Json, responses: Sequence[Json]) -> list[list[int] | None]:
        """The prompt of each answer, as far as it is known."""
        given = body.get("prompt_token_ids")
        own = [response["prompt_token_ids"] for response in responses]
        if given is None:
            return own
        where = "body.prompt_token_ids"
        if not isinstance(given, list):
            raise not_valid("list_type", where, "Input should be a valid list", given)
        read = [read_ids(one, f"{where}.{i}") for i, one in enumerate(given)]
        if len(read) != len(own):
            raise _unequal(body, "prompt_token_ids", len(read), len(own))
        return [a if a is not None else b for a, b in zip(read, own, strict=True)]

    def _bounds(self) -> Bounds:
        known = self.renderer.model.vocabulary_size or 0
        size = max(known, self.renderer.vocabulary_size)
        return Bounds(limit=self._endpoint.limit, vocabulary=size)


def _generated(responses: Sequence[Json]) -> int:
    return sum(len(c["token_ids"]) for one in responses for c in one["choices"])


def _check_there(body: Json, kind: str, name: str) -> None:
    """A body without its answer: neither a whole one's nor a chunk's, says pydantic."""
    if name in body:
        return
    stream = f"body.Derender{kind}StreamRequest"
    places = [f"body.Derender{kind}Request.{name}", f"{stream}.generate_chunk"]
    if "stream" not in body:
        places.insert(1, f"{stream}.stream")
    shown = f"<dict of {len(body)} items>"
    lines = [
        f"  { ({'type': 'missing', 'loc': place, 'msg': 'Field required'}) }"[:-1]
        + f", 'input': '{shown}'}}"
        for place in places
    ]
    message = f"{len(places)} validation errors:\n" + "\n".join(lines)
    raise RenderRefused(message, type="Bad Request", param=places[0])


def _check_lengths(body: Json, counts: Sequence[int] | None, wanted: int) -> None:
    if counts is not None and len(counts) != wanted:
        raise _unequal(body, "prompt_tokens", len(counts), wanted)


def _unequal(body: Json, name: str, length: int, wanted: int) -> RenderRefused:
    words = (
        f"Value error, {name} length ({length}) must equal generate_responses length "
        f"({wanted})"
    )
    return not_valid("value_error", "body", words, body)
