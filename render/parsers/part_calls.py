"""Readers of calls whose name and arguments are each in a part of their own."""

from render.parsers.calls import Body, Read
from render.parsers.events import Call
from render.parsers.json_calls import named_call

CDATA = ("<![CDATA[", "]]>")


def either(*reads: Read) -> Read:
    """What the first that finds calls has read."""

    def read(body: Body) -> list[Call] | None:
        return next((calls for one in reads if (calls := one(body))), None)

    return read


def read_invoked(separator: str, opening: str, inner: Read) -> Read:
    """`function SEP` and an element that `inner` reads from after its `opening`."""

    def read(body: Body) -> list[Call] | None:
        head, found, rest = body.text.partition(body.marks.of(separator))
        rest = rest.strip()
        if (
            not found
            or head.strip() != "function"
            or rest[:1] != body.marks.of(opening)
        ):
            return None
        return inner(Body(rest[1:], body.marks, body.tools))

    return read


def read_parts(name: tuple[str, str], arguments: tuple[str, str]) -> Read:
    """A name and JSON, each between two tokens."""

    def read(body: Body) -> list[Call] | None:
        text, parts = body.text.strip(), []
        for opening, closing in (name, arguments):
            if text[:1] != body.marks.of(opening):
                return None
            part, found, text = text[1:].partition(body.marks.of(closing))
            if not found:
                return None
            parts.append(body.marks.plain(part))
            text = text.strip()
        return None if text else named_call(parts[0], parts[1].strip() or "{}")

    return read


def without_cdata(value: str) -> str:
    """A value without what says that it is not markup, else without space around it."""
    opening, closing = CDATA
    if value.startswith(opening) and value.endswith(closing):
        return value[len(opening) : -len(closing)]
    return value.strip()
