"""What a client's request becomes for a worker that takes token ids only.

A body is rendered to vLLM's GenerateRequests, one for each prompt; nothing is sent.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from gateway.request.prompt import Kind
from kvindex.blocks import ID_BYTES, pack_ids, unpack_ids
from render import RenderRefused, RenderService
from render.body import Json
from render.derender_prompt import LONGEST_TAIL
from render.derender_request import (
    MAX_LOGPROBS,
    read_chat_request,
    read_completion_request,
)
from render.fields import DEFAULT_MAX_TOKENS, RESPONSES, read_fields
from render.schema import VLLM_KEYS

NO_ECHO = "echo is not supported for a worker that takes token ids only"
NO_BACKGROUND = "background is not supported for such a worker: nothing is stored"
ECHO_LOGPROBS = "echo with logprobs is not supported for such a worker"


class Prompted(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt: its ids, packed and as JSON, and its text as far as it is known."""

    token_ids: bytes
    ids: msgspec.Raw
    text: str | None

    @property
    def tail(self) -> list[int]:
        """The last ids, as many as say how an answer begins."""
        return unpack_ids(self.token_ids[-ID_BYTES * LONGEST_TAIL :])

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self.token_ids) // ID_BYTES


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One client's request, rendered.

    `requests` are GenerateRequests without their ids, which are in `prompts`. `asked`
    is the client's request, with the fields that were read in their types.
    """

    kind: Kind
    service: RenderService
    asked: Json
    prompts: tuple[Prompted, ...]
    requests: tuple[Json, ...]

    @property
    def stream(self) -> bool:
        """Whether the client wants a stream."""
        return bool(self.asked.get("stream"))

    @property
    def stops(self) -> bool:
        """Whether there are stop strings."""
        return any(one["sampling_params"].get("stop") for one in self.requests)

    @property
    def choices(self) -> int:
        """Answers to each prompt, as the engine is asked for them."""
        n = self.requests[0]["sampling_params"].get("n")
        return n if isinstance(n, int) else 1

    def body(self, prompt: int, *, request_id: str, stream: bool, stops: bool) -> bytes:
        """The GenerateRequest for a prompt; without its stop strings unless `stops`."""
        request = self.requests[prompt]
        sampling = request["sampling_params"]
        if not stops:
            sampling = {k: v for k, v in sampling.items() if k not in NOT_WITHOUT_TEXT}
        return msgspec.json.encode(
            {
                **request,
                "request_id": request_id,
                "token_ids": self.prompts[prompt].ids,
                "sampling_params": sampling,
                "stream": stream,
                "stream_options": {"include_usage": True} if stream else None,
            }
        )


NOT_WITHOUT_TEXT = ("stop", "output_text_buffer_length", "include_stop_str_in_output")
"""What an engine has no use for that does not turn its ids into text."""


def prepare(
    service: RenderService, body: bytes, kind: Kind, request_id: str
) -> Generation:
    """Render a body; raises RenderRefused for one that no such worker can answer."""
    return PREPARE[kind](service, body, request_id)


def _chat(service: RenderService, body: bytes, request_id: str) -> Generation:
    rendered = service.chat(body, request_id=request_id)
    asked = read_chat_request(rendered["request"]) or {}
    if asked["echo"]:
        raise RenderRefused(NO_ECHO, param="echo")
    wanted = asked["max_completion_tokens"]
    wanted = asked["max_tokens"] if wanted is None else wanted
    return _generation("chat", service, asked, [rendered], wanted)


def _completion(service: RenderService, body: bytes, request_id: str) -> Generation:
    rendered = service.completions(body, request_id=request_id, prompt_text=True)
    asked = read_completion_request(rendered[0]["request"]) or {}
    if asked["echo"] and asked["logprobs"] is not None:
        raise RenderRefused(ECHO_LOGPROBS, param="echo")
    wanted = asked["max_tokens"]
    wanted = DEFAULT_MAX_TOKENS if wanted is None else wanted
    generation = _generation("completion", service, asked, rendered, wanted)
    for request in generation.requests:
        _ask_for_one_more(request["sampling_params"])
    return generation


def _response(service: RenderService, body: bytes, request_id: str) -> Generation:
    rendered = service.responses(body, request_id=request_id)
    request = rendered["request"]
    asked = {**request, **read_fields(request, RESPONSES)}
    if asked["background"]:
        raise RenderRefused(NO_BACKGROUND, param="background")
    wanted = asked["max_output_tokens"]
    return _generation("responses", service, asked, [rendered], wanted)


PREPARE: Mapping[Kind, Callable[[RenderService, bytes, str], Generation]] = {
    "chat": _chat,
    "completion": _completion,
    "responses": _response,
}


def _generation(
    kind: Kind,
    service: RenderService,
    asked: Json,
    rendered: Sequence[Json],
    max_tokens: int | None,
) -> Generation:
    requests = [
        {key: one[key] for key in VLLM_KEYS if key != "token_ids"} for one in rendered
    ]
    bounded = max_tokens is not None or service.limit is not None
    for request in requests:
        _say_max_tokens(request["sampling_params"], bounded=bounded)
    return Generation(
        kind=kind,
        service=service,
        asked=asked,
        prompts=tuple(map(_prompted, rendered)),
        requests=tuple(requests),
    )


def _prompted(rendered: Json) -> Prompted:
    return Prompted(
        token_ids=pack_ids(rendered["token_ids"]),
        ids=msgspec.Raw(msgspec.json.encode(rendered["token_ids"])),
        text=rendered.get("prompt_text"),
    )


def _say_max_tokens(sampling: Json, *, bounded: bool) -> None:
    """An engine that is not told takes all that its context leaves.

    Rendering leaves the number out where it is what the engine's own record has.
    """
    if bounded and sampling.get("max_tokens") is None:
        sampling["max_tokens"] = DEFAULT_MAX_TOKENS


def _ask_for_one_more(sampling: Json) -> None:
    """Completions show the likeliest besides the one that was taken, if it is neither.

    The engine's own route for ids leaves the last one out then.
    """
    asked = sampling.get("logprobs")
    if sampling.get("temperature") == 0:
        return  # it takes the likeliest
    if isinstance(asked, int) and 0 < asked < MAX_LOGPROBS:
        sampling["logprobs"] = asked + 1
