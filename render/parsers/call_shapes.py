"""The shapes that calls have: each is made a format by a family's delimiters."""

from render.parsers.calls import CallFormat, Read
from render.parsers.gemma_calls import read_gemma
from render.parsers.json_calls import read_json
from render.parsers.marks import Marks
from render.parsers.part_calls import (
    either,
    read_invoked,
    read_parts,
    without_cdata,
)
from render.parsers.python_calls import read_python
from render.parsers.scans import FollowedScan, JsonScan, MarkScan, RestScan, Scan
from render.parsers.tagged_calls import (
    read_dsml,
    read_pairs,
    read_parameters,
)

BAR = "\N{FULLWIDTH VERTICAL LINE}"  # in the names of DeepSeek's tokens
JSON = "{[`"
"""What JSON begins with, or a fence around it."""
KEY, VALUE = ("<arg_key>", "</arg_key>"), ("<arg_value>", "</arg_value>")


def plamo_tags(name: str) -> tuple[str, str]:
    """What PLaMo writes around something."""
    return f"<|plamo:begin_{name}:plamo|>", f"<|plamo:end_{name}:plamo|>"


def json_in(opening: str, closing: str, read: Read = read_json) -> CallFormat:
    """JSON between two tags."""

    def scan(marks: Marks) -> Scan:
        return JsonScan(marks.of(closing))

    return CallFormat(
        opens=(opening,), closes=(closing,), scan=scan, read=read, begins=JSON
    )


def json_after(*openings: str, read: Read = read_json) -> CallFormat:
    """JSON after a tag; it ends itself."""

    def scan(marks: Marks) -> Scan:
        return JsonScan("".join(map(marks.of, openings)), value=True)

    return CallFormat(opens=openings, scan=scan, read=read, begins=JSON)


def parameters(
    section: tuple[str, str],
    call: tuple[str, str],
    parameter: tuple[str, str],
    *,
    inline: bool = False,
) -> CallFormat:
    """Named parameters in tags of their own, in calls, in a section."""

    def scan(marks: Marks) -> Scan:
        return FollowedScan(marks.of(call[1]), marks.of(section[1]) + marks.of(call[0]))

    return CallFormat(
        section=section,
        opens=(call[0],),
        others=(call[1], *parameter),
        scan=scan,
        read=read_parameters(*parameter, (call[1],), inline=inline),
    )


def dsml(
    name: str,
    *,
    words: str = "DSML",
    space: str = "",
    spellings: tuple[str, ...] = (),
) -> CallFormat:
    """DeepSeek's tags; `name` is what the section is called, `words` stand before."""
    tag = f"{BAR}{words}{BAR}{space}"
    end, short, opening = f"</{tag}invoke>", '"/>', f'<{tag}invoke name="'
    section = (f"<{tag}{name}>", f"</{tag}{name}>")
    parameter = (f"<{tag}parameter", f"</{tag}parameter>")

    def scan(marks: Marks) -> Scan:
        return FollowedScan(
            marks.of(end) + marks.of(short), marks.of(section[1]) + marks.of(opening)
        )

    return CallFormat(
        section=section,
        sections=tuple(f"<{tag}{one}>" for one in spellings),
        opens=(opening,),
        others=(end, short, *parameter),
        scan=scan,
        read=read_dsml(*parameter, end, short),
    )


def in_section(
    section: tuple[str, str], call: tuple[str, str], separator: str, read: Read
) -> CallFormat:
    """Calls between tokens, with a token between name and JSON."""

    def scan(marks: Marks) -> Scan:
        return JsonScan(marks.of(call[1]))

    return CallFormat(
        section=section,
        opens=(call[0],),
        closes=(call[1],),
        others=(separator,),
        scan=scan,
        read=read,
    )


def pairs(
    section: tuple[str, str] | None = None,
    separator: str | None = None,
    *,
    call: tuple[str, str] = ("<tool_call>", "</tool_call>"),
    suffixed: bool = False,
) -> CallFormat:
    """Pairs of keys and values after a name."""

    def scan(marks: Marks) -> Scan:
        return MarkScan(marks.of(call[1]), "".join(map(marks.of, VALUE)))

    return CallFormat(
        section=section,
        opens=(call[0],),
        closes=(call[1],),
        others=(*KEY, *VALUE, *([separator] if separator else [])),
        scan=scan,
        read=read_pairs(KEY, VALUE, separator),
        suffixed=suffixed,
    )


def typed_pairs(space: str) -> CallFormat:
    """Pairs whose tags are in a name space, with types or not; or JSON instead."""

    def tags(name: str) -> tuple[str, str]:
        return f"<{space}{name}>", f"</{space}{name}>"

    call, value = tags("tool_call"), tags("arg_value")
    key, kind = tags("arg_key"), tags("arg_type")

    def scan(marks: Marks) -> Scan:
        return MarkScan(marks.of(call[1]), "".join(map(marks.of, value)))

    return CallFormat(
        section=tags("tool_calls"),
        opens=(call[0],),
        closes=(call[1],),
        others=(*key, *kind, *value),
        scan=scan,
        read=either(read_pairs(key, value, kind=kind), read_json),
    )


def parameters_alone(call: tuple[str, str], parameter: tuple[str, str]) -> CallFormat:
    """Named parameters in calls that no section is around; values may be CDATA."""

    def scan(marks: Marks) -> Scan:
        return MarkScan(marks.of(call[1]), "".join(map(marks.of, parameter)))

    return CallFormat(
        opens=(call[0],),
        closes=(call[1],),
        others=parameter,
        scan=scan,
        read=read_parameters(
            *parameter, (), inline=True, guess=True, unwrapped=without_cdata
        ),
    )


def steps() -> CallFormat:
    """Step 3: parameters in an element, after what kind of call it is."""
    section = (f"<{BAR}tool_calls_begin{BAR}>", f"<{BAR}tool_calls_end{BAR}>")
    call = (f"<{BAR}tool_call_begin{BAR}>", f"<{BAR}tool_call_end{BAR}>")
    separator = f"<{BAR}tool_sep{BAR}>"
    invoke = ("<steptml:invoke name=", "</steptml:invoke>")
    parameter = ("<steptml:parameter name=", "</steptml:parameter>")

    def scan(marks: Marks) -> Scan:
        return MarkScan(marks.of(call[1]), "".join(map(marks.of, parameter)))

    inner = read_parameters(*parameter, (invoke[1],), inline=True, unwrapped=str.strip)
    return CallFormat(
        section=section,
        opens=(call[0],),
        closes=(call[1],),
        others=(separator, *invoke, *parameter),
        scan=scan,
        read=read_invoked(separator, invoke[0], inner),
    )


def plamo() -> CallFormat:
    """PLaMo 3: name and arguments each between their own tokens."""
    call, name = plamo_tags("tool_request"), plamo_tags("tool_name")
    opening, closing = plamo_tags("tool_arguments")
    arguments = (f"{opening}<|plamo:constrain|>json<|plamo:msg|>", closing)

    def scan(marks: Marks) -> Scan:
        return JsonScan(marks.of(call[1]))

    return CallFormat(
        section=plamo_tags("tool_requests"),
        opens=(call[0],),
        closes=(call[1],),
        others=(*name, *arguments),
        scan=scan,
        read=read_parts(name, arguments),
    )


def gemma(opening: str, closing: str, quote: str) -> CallFormat:
    def scan(marks: Marks) -> Scan:
        return MarkScan(marks.of(closing), marks.of(quote) * 2)

    return CallFormat(
        opens=(opening,),
        closes=(closing,),
        others=(quote,),
        scan=scan,
        read=read_gemma(quote),
    )


def python(opening: str, closing: str) -> CallFormat:
    def scan(marks: Marks) -> Scan:
        return JsonScan(marks.of(closing), quotes="\"'")

    return CallFormat(opens=(opening,), closes=(closing,), scan=scan, read=read_python)


def rest(opening: str, read: Read) -> CallFormat:
    def scan(marks: Marks) -> Scan:
        return RestScan(marks.of(opening))

    return CallFormat(opens=(opening,), scan=scan, read=read)
