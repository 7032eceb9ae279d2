"""No template goes on for ever, whether it writes anything or not."""

import time

import jinja2
import pytest

from render.errors import Unrenderable
from render.template import ChatTemplate, chat_environment

R = "range(99999)"
FOR_A, FOR_B, END = f"{{% for a in {R} %}}", f"{{% for b in {R} %}}", "{% endfor %}"
LOOPS = FOR_A + FOR_B + END + END
# fmt: off
ENDLESS = {
    "loops": LOOPS,
    "loops that write": LOOPS.replace("{% endfor %}", "x{% endfor %}", 1),
    "loop variable": FOR_A + FOR_B + "{{ '' if loop.last }}" + END + END,
    "filtered loops": f"{{% for a in {R} %}}{{% for b in {R} if b < 0 %}}"
    "{% endfor %}{% endfor %}",
    "in a set block": "{% set x %}" + LOOPS + "{% endset %}",
    "in a macro": "{% macro m() %}" + LOOPS + "{% endmacro %}{{ m() }}",
    "macros": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}"
    "{% endmacro %}{{ m(60) }}",
    "blocks": "{% block b %}{% set ns = namespace(n=0) %}{{ self.c() }}{% endblock %}"
    "{% block c %}{% for i in range(9) %}{{ self.d() }}{% endfor %}{% endblock %}"
    "{% block d %}{% for i in range(9) %}{% for j in range(99999) %}{% endfor %}"
    "{% endfor %}{% endblock %}" + "{{ self.b() }}" * 99,
    "recursive loop": "{% for a in [[1, 1]] recursive %}{% for i in range(9) %}"
    + FOR_B + END + END + "{{ loop([a, a]) }}" + END,
    "select": f"{{% set x = {R} | list %}}{{{{ x | select('in', x | list) | list }}}}",
    "map": f"{{% set x = {R} | list %}}{{% set y = x | map('string') | list %}}"
    f"{{% for a in {R} %}}{{% set y = x | map('string') | list %}}{{% endfor %}}",
    "reject attribute": "{% set ns = namespace(x=0) %}"
    + FOR_A + f"{{% set ns.x = {R} | rejectattr('real') | list %}}" + END,
}
# fmt: on


@pytest.mark.parametrize("source", ENDLESS.values(), ids=list(ENDLESS))
def test_endless(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is given up soon after its time is over."""
    monkeypatch.setattr("render.bounds.LIMIT_S", 0.2)
    template = ChatTemplate(source, chat_environment())
    begun = time.monotonic()
    with pytest.raises(Unrenderable) as error:
        template.render({"messages": []})
    assert error.value.reason == "template_error"
    assert time.monotonic() - begun < 5.0
    assert "too long" in error.value.message or "recursion" in error.value.message


@pytest.mark.parametrize(
    "source",
    [
        "{{ [1] | slice(1000000000000) | list }}",
        "{{ [1] | batch(1000000000000, 'x') | list }}",
        "{{ 'x' | center(10000000000) }}",
        "{{ 'x\ny' | indent(10000000000) }}",
        "{{ 'x\ny' | indent(width=10000000000) }}",
        "{{ {'a': 1} | tojson(indent=10000000000) }}",
        "{{ 'x'.ljust(10000000000) }}",
        "{{ 'x'.zfill(10000000000) }}",
        "{{ lipsum(n=1000000000) }}",
    ],
)
def test_refuses_what_takes_too_much(source: str) -> None:
    """Widths and counts are bounded, and no text is made at random."""
    with pytest.raises(jinja2.TemplateError):
        chat_environment().from_string(source).render()


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("{{ 10000000000 | tojson }}", "10000000000"),
        ("{% macro m(a) %}{{ a }}{% endmacro %}{{ m(10000000000) }}", "10000000000"),
        ("{{ [10000000000].index(10000000000) }}", "0"),
        ("{{ [1, 2, 3] | slice(2) | list }}", "[[1, 2], [3]]"),
        ("{{ [1, 2, 3] | batch(2, 0) | list }}", "[[1, 2], [3, 0]]"),
        ("{{ 'x' | center(5) }}", "  x  "),
        ("{{ 'a b c' | truncate(4, true, '', 0) }}", "a b "),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{{ 'a b' | wordwrap(1) }}", "a\nb"),
        ("{{ [1, 2, 3] | select('odd') | map('string') | join }}", "13"),
        (
            "{% for a in [1, 2, 3] if a > 1 %}{{ loop.index }}/{{ loop.length }}"
            "{{ loop.previtem }} {% else %}none{% endfor %}",
            "1/2 2/22 ",
        ),
        ("{% for a in [] %}x{% else %}none{% endfor %}", "none"),
        (
            "{% for a in [1, [2, [3]]] recursive %}"
            "{% if a is iterable %}({{ loop(a) }}){% else %}{{ a }}{% endif %}"
            "{% endfor %}",
            "1(2(3))",
        ),
        (
            "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ caller() }}{% endmacro %}"
            "{% call m(1) %}c{% endcall %}",
            "12c",
        ),
        ("{% block b %}{{ x }}{% endblock %}{{ self.b() }}", "77"),
        ("{% for a in 'abc' %}{% if a == 'b' %}{% continue %}{% endif %}{{ a }}"
         "{% endfor %}", "ac"),
    ],
)  # fmt: skip
def test_as_ever(source: str, wanted: str) -> None:
    """What ends is what jinja2 makes of it."""
    plain = chat_environment().from_string(source)
    assert plain.render(x=7) == wanted


def test_time_is_each_renderings_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that took its time may be rendered again."""
    monkeypatch.setattr("render.bounds.LIMIT_S", 0.3)
    template = ChatTemplate(
        "{% for a in range(99) %}{{ a }}{% endfor %}", chat_environment()
    )
    for _ in range(3):
        template.render({})
        time.sleep(0.2)
