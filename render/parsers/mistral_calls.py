"""Mistral's calls: `[TOOL_CALLS]name[ARGS]{...}`, or `[TOOL_CALLS]` and a JSON list."""

import re

from render.parsers.calls import Body, CallFormat
from render.parsers.events import Call
from render.parsers.json_calls import named_call, read_json
from render.parsers.marks import Marks
from render.parsers.scans import JsonScan

OPEN, ARGUMENTS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"


def _read(body: Body) -> list[Call] | None:
    head, found, rest = body.text.partition(body.marks.of(ARGUMENTS))
    if not found:
        braced = re.match(r"\s*([\w.\-]+)\s*(\{.*)\Z", body.text, re.DOTALL)
        if braced is None:
            return read_json(body)
        head, rest = braced[1], braced[2]
    name = head.split(body.marks.of(CALL_ID))[0]
    if body.marks.plain(name) != name:
        return None
    return named_call(name, body.marks.plain(rest))


def _scan(marks: Marks) -> JsonScan:
    return JsonScan(marks.of(OPEN), value=True)


MISTRAL = CallFormat(opens=(OPEN,), others=(ARGUMENTS, CALL_ID), scan=_scan, read=_read)
