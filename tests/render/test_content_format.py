"""Which templates are handed content as a list of parts."""

import pytest
from jinja2 import nodes

from render.content_format import detect_content_format
from render.template import chat_environment

OPENAI = {
    "attribute": "{% for m in messages %}{% for p in m.content %}",
    "item": "{% for m in messages %}{% for p in m['content'] %}",
    "filters": ("{% for m in messages | list %}{% for p in m.content | reverse %}"),
    "slice": ("{% for m in messages[1:] %}{% for p in m.content[:2] %}"),
    "alias": (
        "{% set rest = messages[1:] %}{% set turns = rest | list %}"
        "{% for m in turns %}{% for p in m.content %}"
    ),
    "namespace": (
        "{% set ns = namespace(turns=messages) %}"
        "{% for m in ns.turns %}{% for p in m.content %}"
    ),
    "namespace attribute": (
        "{% set ns = namespace() %}{% set ns.turns = messages[1:] %}"
        "{% for m in ns['turns'] %}{% for p in m.content %}"
    ),
    "macro argument": (
        "{% macro show(body) %}{% for p in body %}{% endfor %}{% endmacro %}"
        "{% for m in messages %}{{ show(m.content) }}"
    ),
    "macro keyword": (
        "{% macro show(role, body='') %}{% for p in body %}{% endfor %}{% endmacro %}"
        "{% for m in messages %}{{ show(m.role, body=m['content']) }}"
    ),
    "variable named content": (
        "{% for m in messages %}{% set content = m.content %}{% for p in content %}"
    ),
}
STRING = {
    "printed": "{% for m in messages %}{{ m.content }}",
    "nothing": "hello",
    "other loop": "{% for m in messages %}{% for c in m.tool_calls %}",
    "not the messages": "{% for m in others %}{% for p in m.content %}",
    "content in a macro": (
        "{% macro show(content) %}{% for p in content %}{% endfor %}{% endmacro %}"
        "{% for m in messages %}{{ show(m.role) }}"
    ),
    "first message only": "{% for p in messages[0].content %}",
    "several targets": (
        "{% for a, b in messages %}{% for m in messages %}{% for p in m.content %}"
    ),
    "own variable": (
        "{% for m in messages %}{% set body = m.content %}{% for p in body %}"
    ),
    "circular": "{% set a = b %}{% set b = a %}{% for m in a %}{{ m.content }}",
}


def _parsed(source: str) -> nodes.Template:
    """The template, its loops closed."""
    open_loops = source.count("{% for ") - source.count("{% endfor %}")
    return chat_environment().parse(source + "{% endfor %}" * open_loops)


@pytest.mark.parametrize("source", list(OPENAI.values()), ids=list(OPENAI))
def test_parts(source: str) -> None:
    """A loop over the content, however reached, wants parts."""
    assert detect_content_format(_parsed(source)) == "openai"


@pytest.mark.parametrize("source", list(STRING.values()), ids=list(STRING))
def test_string(source: str) -> None:
    """No such loop, or one vLLM does not see either, wants a string."""
    assert detect_content_format(_parsed(source)) == "string"
