"""What newer releases of transformers do to messages, and to what templates may call.

A worker's release decides; the installed one does not. Each came with a release and
changed prompts: `alias_reasoning` with 5.21, `drop_none` and `limited_globals` with
5.24.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

from render.body import Json

ALIAS_REASONING = "alias_reasoning"
DROP_NONE = "drop_none"
LIMITED_GLOBALS = "limited_globals"
SWITCHES = (ALIAS_REASONING, DROP_NONE, LIMITED_GLOBALS)
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


def switched(messages: Sequence[Json], switches: Collection[str]) -> list[Json]:
    """The messages as a release with these switches shows them."""
    shown = list(messages)
    if DROP_NONE in switches:
        shown = [{k: v for k, v in m.items() if v is not None} for m in shown]
    if ALIAS_REASONING in switches:
        shown = [_aliased(message) for message in shown]
    return shown


def switched_globals(switches: Collection[str]) -> Mapping[str, object]:
    """What a release with these switches gives templates in place of jinja2's own."""
    if LIMITED_GLOBALS not in switches:
        return {}
    return {"dict": _LimitedDict(), "namespace": _LimitedNamespace}


def _aliased(message: Json) -> Json:
    """Reasoning under the name templates read, and the one gpt-oss templates read."""
    names = (name for name in REASONING_FIELDS if message.get(name) is not None)
    name = next(names, None)
    if name is None:
        return message
    reasoning = message[name]
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


class _LimitedDict:
    """`dict` without the attributes of Python's; `dict.other` is undefined."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """As of Python's."""
        return dict.fromkeys(*args, **kwargs)


class _LimitedNamespace(Namespace):
    """A namespace that refuses attributes that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # As jinja2's: a template may name an attribute `self`.
        self, attributes = args[0], dict(*args[1:], **kwargs)
        for name in attributes:
            _check_attribute(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace may not hold {name!r}")
