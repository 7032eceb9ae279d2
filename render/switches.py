"""What newer releases of transformers do to messages before they reach a template.

A worker's release decides; the installed one does not. Both came with a release and
changed prompts: `alias_reasoning` with 5.21, `drop_none` with 5.24.
"""

from collections.abc import Collection, Sequence

from render.body import Json

ALIAS_REASONING = "alias_reasoning"
DROP_NONE = "drop_none"
SWITCHES = (ALIAS_REASONING, DROP_NONE)
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


def switched(messages: Sequence[Json], switches: Collection[str]) -> list[Json]:
    """The messages as a release with these switches shows them."""
    shown = list(messages)
    if DROP_NONE in switches:
        shown = [{k: v for k, v in m.items() if v is not None} for m in shown]
    if ALIAS_REASONING in switches:
        shown = [_aliased(message) for message in shown]
    return shown


def _aliased(message: Json) -> Json:
    """Reasoning under the name templates read, and the one gpt-oss templates read."""
    names = (name for name in REASONING_FIELDS if message.get(name) is not None)
    name = next(names, None)
    if name is None:
        return message
    reasoning = message[name]
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}
