"""Templates are bounded, and the right one is chosen."""

import time
from pathlib import Path

import jinja2
import pytest

from render import ModelNotFound, Renderer, Unrenderable
from render.model import load_model
from render.template import ChatTemplate, ChatTemplates, chat_environment
from tests.render import models

USER = {"role": "user", "content": "hi"}


def test_date_comes_from_the_clock() -> None:
    """`strftime_now` prints the injected clock's local date."""
    noon = time.mktime((2024, 2, 29, 12, 0, 0, 0, 0, -1))
    environment = chat_environment(lambda: noon)
    template = ChatTemplate("{{ strftime_now('%d %b %Y %H:%M') }}", environment)
    assert template.render({}) == "29 Feb 2024 12:00"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 1000000000 }}",
        "{{ 1000000000 * 'x' }}",
        "{{ [1] * 100000000 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{% for i in range(99999) %}{% for j in range(9) %}{{ 'y' * 999 }}"
        "{% endfor %}{% endfor %}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ range(10 ** 9) | list }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception('no') }}",
        "{{ undefined.attribute }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_template_that_misbehaves(source: str) -> None:
    """Escapes, endless recursion and gigabytes end as a template error."""
    template = ChatTemplate(source, chat_environment())
    with pytest.raises(Unrenderable) as caught:
        template.render({"messages": []})
    assert caught.value.reason == "template_error"


def test_a_template_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many short messages can make a quadratic template run for hours."""
    monkeypatch.setattr("render.bounds.LIMIT_S", 0.1)
    loops = "{% for a in m %}{% for b in m %}.{% endfor %}{% endfor %}"
    template = ChatTemplate(loops, chat_environment())
    begun = time.monotonic()
    with pytest.raises(Unrenderable, match="took too long"):
        template.render({"m": [0] * 10_000})
    assert time.monotonic() - begun < 5


def test_arithmetic_still_works() -> None:
    """The bounds leave ordinary products and powers alone."""
    template = ChatTemplate("{{ 3 * 4 }} {{ 'ab' * 2 }} {{ 2 ** 10 }}", _environment())
    assert template.render({}) == "12 abab 1024"


def _environment() -> jinja2.Environment:
    return chat_environment()


def test_what_a_template_reads() -> None:
    """Variables, the developer role and the content format are seen in the source."""
    template = ChatTemplate(
        "{% set a = b %}{% for m in messages %}{{ m.role == 'developer' }}{% endfor %}",
        _environment(),
    )
    assert template.variables == {"b", "messages"}
    assert template.knows_developer
    assert template.content_format == "string"


def _chosen(path: Path, *, tools: bool, given: str | None = None) -> str:
    templates = ChatTemplates.load(
        load_model(path), chat_template=given, clock=time.time
    )
    return templates.choose(tools=tools, processor_first=not tools).source


NAMED: dict[str, object] = {
    "chat_template": [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "tools"},
    ]
}


@pytest.mark.parametrize(
    ("config", "files", "plain", "with_tools"),
    [
        ({"chat_template": "one"}, {}, "one", "one"),
        (NAMED, {}, "plain", "tools"),
        (NAMED, {"chat_template.jinja": "file"}, "file", "file"),
        (
            NAMED,
            {
                "chat_template.jinja": "file",
                "additional_chat_templates/tool_use.jinja": "extra",
                "additional_chat_templates/rag.jinja": "rag",
            },
            "file",
            "extra",
        ),
        ({}, {"chat_template.json": '{"chat_template": "old"}'}, "old", "old"),
        (
            {"chat_template": "tokenizer"},
            {
                "chat_template.json": '{"chat_template": "processor"}',
                "preprocessor_config.json": "{}",
            },
            "processor",
            "tokenizer",
        ),
        (
            {"chat_template": "tokenizer"},
            {"chat_template.json": '{"chat_template": "processor"}'},
            "tokenizer",
            "tokenizer",
        ),
        (
            {"chat_template": [{"name": "default", "template": "{% bad"}]},
            {"additional_chat_templates/default.jinja": "good"},
            "good",
            "good",
        ),
    ],
)
def test_which_template(
    tmp_path: Path,
    config: dict[str, object],
    files: dict[str, str],
    plain: str,
    with_tools: str,
) -> None:
    """Files win over the configuration; with tools, `tool_use` over a processor's."""
    models.save(tmp_path, models.byte_level(), tokenizer_config=config, files=files)
    assert _chosen(tmp_path, tools=False) == plain
    assert _chosen(tmp_path, tools=True) == with_tools


def test_given_template_wins(tmp_path: Path) -> None:
    """A name, a file, or the template itself override the model's."""
    models.save(tmp_path, models.byte_level(), tokenizer_config=NAMED)
    file = tmp_path / "mine.jinja"
    file.write_text("mine\n")
    assert _chosen(tmp_path, tools=False, given="tool_use") == "tools"
    assert _chosen(tmp_path, tools=True, given=str(file)) == "mine\n"
    assert _chosen(tmp_path, tools=True, given="{{ 1 }}") == "{{ 1 }}"


@pytest.mark.parametrize("given", ["no/such/file", "{% bad"])
def test_given_template_that_is_none(tmp_path: Path, given: str) -> None:
    """Neither a name nor a file nor a template: one clear line."""
    models.save(tmp_path, models.byte_level())
    with pytest.raises(ModelNotFound, match=r"chat template") as caught:
        Renderer.load(tmp_path, chat_template=given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("config", [{}, {"chat_template": "{% bad"}])
def test_no_usable_template(tmp_path: Path, config: dict[str, object]) -> None:
    """Without a template, or with a broken one, chats say so and completions work."""
    models.save(tmp_path, models.byte_level(), tokenizer_config=config)
    renderer = Renderer.load(tmp_path)
    with pytest.raises(Unrenderable) as caught:
        renderer.render_chat({"messages": [USER]})
    assert caught.value.reason == "no_template"
    assert len(renderer.render_completion({"prompt": "hello"})[0]) > 0
