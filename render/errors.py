"""What can go wrong in rendering.

    Unrenderable    this request has no ids here; it is still routed and sent
    ModelNotFound   a model directory that is not there, or cannot be used

Neither is an answer to a client: what a worker would refuse is for the worker to
refuse. What a render endpoint answers is `refused.py`'s RenderRefused.
"""

from collections.abc import Iterable
from typing import Literal, get_args

Reason = Literal[
    "bad_json",  # not a JSON object, or not one that can be read
    "bad_field",  # a field that reaches the prompt has a type the worker refuses
    "bad_messages",  # messages missing, empty or of a shape no template is given
    "bad_prompt",  # a completion's prompt missing, empty or mixed
    "stored",  # a response that goes on from what only its worker has stored
    "media",  # images, audio, video, files, embeddings
    "request_template",  # the request brings its own chat template
    "no_template",  # the model has no chat template
    "template_error",  # the template refused, failed, or wrote too much
    "missing_extra",  # an optional library that renders this model is not installed
    "model_type",  # the worker does not use this model's Jinja template
    "too_large",  # text above the limit
    "tokenizer_error",  # the tokenizer failed
]
REASONS: tuple[Reason, ...] = get_args(Reason)


class Unrenderable(ValueError):
    """A request that cannot be rendered. `reason` is one of REASONS: a metric label."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason: Reason = reason
        self.message = message


class ModelNotFound(ValueError):
    """No usable model; the message is one line that says what was looked for where."""


def check_one_of(what: str, name: str, known: Iterable[str]) -> None:
    """Raises ModelNotFound for a name that is not known."""
    names = list(known)
    if name not in names:
        raise ModelNotFound(f"no {what} {name!r}: one of {', '.join(names)}")
