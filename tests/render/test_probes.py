"""Probes: every feature has one, and what templates do differently shows in them."""

from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import nodes

from kvindex.blocks import pack_ids
from render import Renderer, Unrenderable
from render.probes import PROBES, Probe, first_difference
from render.profile import PROFILES
from render.shape import FEATURES, shape_of
from render.template import chat_environment


@pytest.fixture(scope="module")
def renderer(model_dir: Path) -> Renderer:
    """The built-in model's renderer."""
    return Renderer.load(model_dir, encoder="tokenizers")


IDS = st.lists(st.integers(0, 2**32 - 1), max_size=8)


@given(IDS, IDS, IDS)
def test_first_difference(
    common: list[int], ours: list[int], theirs: list[int]
) -> None:
    """The first position where one side has another id, or none."""
    mine, other = common + ours, common + theirs
    position = first_difference(pack_ids(mine), other)
    if position is None:
        assert mine == other
    else:
        assert mine[:position] == other[:position]
        assert mine[position : position + 1] != other[position : position + 1]


@pytest.mark.parametrize("profile", PROFILES)
def test_every_feature_has_a_probe(profile: str) -> None:
    """All of them can be proven, each by a chat that may be sent ids."""
    found = [shape_of(probe.body, profile) for probe in PROBES]
    assert all(shape.never is None for shape in found)
    assert frozenset().union(*(shape.features for shape in found)) == FEATURES
    assert found[0].features == frozenset()
    assert [probe.features(profile) for probe in PROBES] == [
        shape.features for shape in found
    ]


def test_names() -> None:
    """Each is known by its own name, fit for a log line."""
    names = [probe.name for probe in PROBES]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


@pytest.mark.parametrize("profile", PROFILES)
def test_all_are_rendered(renderer: Renderer, profile: str) -> None:
    """A usual template renders them all: none is there in vain."""
    own = renderer.with_profile(profile)
    for probe in PROBES:
        assert len(own.render_chat(probe.body)) > 0


def test_they_are_few_and_short(renderer: Renderer) -> None:
    """Asking a worker for all of them costs it little."""
    tokens = [len(renderer.render_chat(probe.body)) for probe in PROBES]
    assert len(tokens) < 40
    assert sum(tokens) < 8000


def _texts(source: str) -> Iterator[str]:
    """Each text that a template writes, as its source has it."""
    parsed = chat_environment().parse(source)
    for output in parsed.find_all(nodes.Output):
        yield from (text.data for text in output.find_all(nodes.TemplateData))
        for constant in output.find_all(nodes.Const):
            if isinstance(constant.value, str) and constant.value.strip():
                yield constant.value


def _text(renderer: Renderer, probe: Probe, template: str) -> str | None:
    try:
        return renderer.chat_prompt(probe.body, chat_template=template).text
    except Unrenderable:
        return None


def test_another_text_in_the_template_shows(renderer: Renderer) -> None:
    """Whatever text of the template is changed, some probe differs."""
    source = renderer.model.tokenizer_templates["default"]
    known = {probe.name: _text(renderer, probe, source) for probe in PROBES}
    changed = 0
    for text in set(_texts(source)):
        for written in {text, text.replace("\n", "\\n")}:
            if written in source:
                other = source.replace(written, written + "~")
                assert any(_text(renderer, p, other) != known[p.name] for p in PROBES)
                changed += 1
    assert changed > 10


def test_jinja_sees_what_is_changed() -> None:
    """The texts of a template are found in outputs of both kinds."""
    assert isinstance(chat_environment(), jinja2.Environment)
    assert set(_texts("a{{ 'b' + x }}{% if y %}c{% endif %}")) == {"a", "b", "c"}
