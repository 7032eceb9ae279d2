"""The sandbox gives templates what jinja2's own gives them."""

from typing import Any

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from render.sandbox import Sandbox

VALUES: dict[str, Any] = {
    "text": "a b",
    "list": [1, 2],
    "dict": {"a": 1, "items": 2, "get": 3, "_own": 4, "__class__": 5},
    "number": 1,
    "none": None,
    "function": len,
    "type": dict,
    "namespace": jinja2.utils.Namespace({"a": 1, "format": "x"}),
}
NAMES = [
    *("a", "items", "get", "update", "_own", "__class__", "__init__", "format"),
    *("append", "upper", "split", "mro", "missing", "fromkeys", "__code__", "real"),
]


@pytest.mark.parametrize("value", list(VALUES.values()), ids=list(VALUES))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("access", ["getattr", "getitem"])
def test_same_attributes(value: Any, name: str, access: str) -> None:
    """The same attribute or item, or the same refusal, asked for twice."""
    wanted = getattr(ImmutableSandboxedEnvironment(), access)(value, name)
    sandbox = Sandbox()
    for _ in range(2):
        found = getattr(sandbox, access)(value, name)
        assert type(found) is type(wanted)
        if isinstance(wanted, jinja2.Undefined):
            assert found._undefined_message == wanted._undefined_message
        elif not callable(wanted):
            assert found == wanted


@pytest.mark.parametrize(
    "source",
    [
        '{{ "ab" * 99999999 }}',
        "{{ 99999999 * [1] }}",
        "{{ 9 ** 99999999 }}",
        "{% set n = namespace(x=7) %}{% for i in range(99) %}"
        "{% set n.x = n.x * n.x %}{% endfor %}",
        "{{ 9 ** 999 ** 999 ** 999 }}",
    ],
)
def test_refuses_what_takes_too_much(source: str) -> None:
    """Repetition, powers and products are bounded."""
    with pytest.raises(jinja2.TemplateError, match="too large"):
        Sandbox().from_string(source).render()


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ('{{ "ab" * 2 }}', "abab"),
        ("{{ [1] * -1 }}", "[]"),
        ("{{ 2 ** 1000 }}", str(2**1000)),
        ("{{ 2 ** -1 }}", "0.5"),
        ("{{ 1.5 * 2 }}{{ 0.5 ** 2 }}", "3.00.25"),
        ("{{ true * 3 }}", "3"),
    ],
)
def test_calculates(source: str, wanted: str) -> None:
    """What is not too large is what Python makes of it."""
    assert Sandbox().from_string(source).render() == wanted


def test_remembers_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound it is asked each time, to the same effect."""
    monkeypatch.setattr("render.sandbox.MAX_REMEMBERED", 1)
    sandbox = Sandbox()
    assert sandbox.getattr("text", "upper")() == "TEXT"
    assert sandbox.getattr([2, 1], "index")(1) == 1
    assert isinstance(sandbox.getattr([], "append"), jinja2.Undefined)
