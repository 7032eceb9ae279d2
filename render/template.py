"""Chat templates: the Jinja environment they run in, and which one a request gets.

The environment is what transformers' `apply_chat_template` uses underneath (sandboxed,
the `generation` tag, loop controls, a plain `tojson`), without transformers: quick to
start, and no drift with the version that happens to be installed. Templates come with
models, so they are not trusted: sandboxed, and what they write is bounded.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2 import meta, nodes
from jinja2.parser import Parser

from render.bounds import sized
from render.content_format import (
    ContentFormat,
    detect_content_format,
    looped_contents,
)
from render.errors import ModelNotFound, Unrenderable
from render.model import Model
from render.sandbox import Sandbox

log = logging.getLogger(__name__)

MAX_TEXT = 64 * 1024 * 1024  # characters of one rendered prompt


class ChatTemplate:
    """One compiled template.

    `variables` are the names it reads from its context; `content_format` whether it
    wants content as a string or as parts, `looped_contents` the variables whose content
    it loops over; `knows_developer` whether it mentions the
    developer role.
    """

    def __init__(self, source: str, environment: jinja2.Environment) -> None:
        """Raises jinja2.TemplateError or RecursionError if it cannot be compiled."""
        parsed = environment.parse(source)
        self.source = source
        self.variables = frozenset(meta.find_undeclared_variables(parsed))
        self.content_format: ContentFormat = detect_content_format(parsed)
        self.looped_contents = looped_contents(parsed)
        self.knows_developer = any(
            quoted in source for quoted in ('"developer"', "'developer'")
        )
        self._compiled = environment.from_string(parsed)
        # Not `generate`, which takes long to make a traceback of a template's error.
        self._pieces = self._compiled.root_render_func

    def render(self, context: Mapping[str, object]) -> str:
        """The text for these variables; raises Unrenderable("template_error")."""
        pieces = []
        size = 0
        try:
            for piece in self._pieces(self._compiled.new_context(dict(context))):
                size += len(piece)
                if size > MAX_TEXT:
                    raise Unrenderable("template_error", "the template wrote too much")
                pieces.append(piece)
            return "".join(pieces)
        except Unrenderable:
            raise
        except Exception as error:  # a template may raise anything
            raise Unrenderable("template_error", str(error)) from error


class ChatTemplates:
    """The templates of one model, compiled; a request's tools decide which it gets."""

    def __init__(
        self,
        *,
        given: ChatTemplate | None,
        processor: ChatTemplate | None,
        tokenizer: Mapping[str, ChatTemplate],
        environment: jinja2.Environment | None = None,
    ) -> None:
        self._given = given
        self._processor = processor
        self._tokenizer = tokenizer
        self._environment = environment or chat_environment()

    @classmethod
    def load(
        cls, model: Model, *, chat_template: str | None, clock: Callable[[], float]
    ) -> "ChatTemplates":
        """Compile a model's templates.

        `chat_template` overrides them all: the name of one of them, a file, or the
        template itself; raises ModelNotFound if it is none of these or broken. A
        broken template of the model's is left out with a warning.
        """
        environment = chat_environment(clock)
        named = {
            name: template
            for name, source in model.tokenizer_templates.items()
            if (template := _compile(source, environment, model, name)) is not None
        }
        source = model.processor_template
        return cls(
            given=_given(chat_template, named, environment),
            processor=None
            if source is None
            else _compile(source, environment, model, "processor"),
            tokenizer=named,
            environment=environment,
        )

    def overridden(self, source: str) -> "ChatTemplates":
        """The same with a request's own template; raises Unrenderable."""
        try:
            given = ChatTemplate(source, self._environment)
        except (jinja2.TemplateError, RecursionError) as error:
            raise Unrenderable("template_error", str(error)) from error
        return ChatTemplates(
            given=given,
            processor=self._processor,
            tokenizer=self._tokenizer,
            environment=self._environment,
        )

    def choose(self, *, tools: bool, processor_first: bool) -> ChatTemplate:
        """The template for a request; raises Unrenderable("no_template").

        `tools` is whether there is a list of tools, also an empty one;
        `processor_first` whether the processor's template comes before the tokenizer's.
        """
        if self._given is not None:
            return self._given
        if processor_first and self._processor is not None:
            return self._processor
        names = ("tool_use", "default") if tools else ("default",)
        for name in names:
            if name in self._tokenizer:
                return self._tokenizer[name]
        raise Unrenderable("no_template", "the model has no usable chat template")

    @property
    def given_source(self) -> str | None:
        """The source of the template that overrides the model's."""
        return self._given.source if self._given is not None else None

    def sources(self) -> str:
        """The text of all templates: which tokens they write can be seen in it."""
        templates = [self._given, self._processor, *self._tokenizer.values()]
        return "\n".join(t.source for t in templates if t is not None)


def chat_environment(clock: Callable[[], float] = time.time) -> jinja2.Environment:
    """The environment chat templates run in; `clock` (epoch seconds) tells the date."""

    def strftime_now(format: str) -> str:
        return datetime.fromtimestamp(clock()).strftime(format)

    environment = Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = sized(_tojson)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


class _Generation(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks what a model wrote; no effect."""

    tags = {"generation"}  # noqa: RUF012 (the name and type are jinja2's)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_unchanged")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _unchanged(self, caller: Callable[[], str]) -> str:
        return caller()


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes HTML, which would change the prompt.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _compile(
    source: str, environment: jinja2.Environment, model: Model, name: str
) -> ChatTemplate | None:
    try:
        return ChatTemplate(source, environment)
    except (jinja2.TemplateError, RecursionError) as error:
        log.warning("chat template %r of %s is broken: %s", name, model.name, error)
        return None


def _given(
    chat_template: str | None,
    named: Mapping[str, ChatTemplate],
    environment: jinja2.Environment,
) -> ChatTemplate | None:
    if chat_template is None:
        return None
    if chat_template in named:
        return named[chat_template]
    source = chat_template
    if not any(mark in chat_template for mark in "{}\n"):
        try:
            source = Path(chat_template).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else error
            raise ModelNotFound(
                f"no chat template {chat_template!r}: {said}"
            ) from error
    try:
        return ChatTemplate(source, environment)
    except (jinja2.TemplateError, RecursionError) as error:
        raise ModelNotFound(f"the chat template given is broken: {error}") from error
