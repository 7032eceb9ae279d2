"""Bounds on what a chat template does: time, and the size of what it asks for at once.

A template may loop, or call itself, for ever without writing anything. So code is put
into the compiled template, where the body of each loop, macro and block begins, that
looks at the clock now and then. What a template writes is `template.py`'s to bound.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context

LIMIT_S = 10.0
"""Seconds one rendering may take."""
EVERY = 4
"""Steps between two looks at the clock."""
MAX_NUMBER = 1 << 20
"""Widths, counts and the like that a template may ask for."""
SIZED = ("batch", "center", "indent", "slice", "tojson", "truncate", "wordwrap")
"""Filters whose numbers make texts or lists as long."""

_BODY_BEGINS = "_loop_vars = {}"


class TickingCode(CodeGenerator):
    """Compiles templates that call `BoundedContext.tick` as they go."""

    def writeline(self, x: str, node: nodes.Node | None = None, extra: int = 0) -> None:
        """A line of code; the body of each loop begins with one of its own."""
        super().writeline(x, node, extra)
        if x == _BODY_BEGINS:
            super().writeline("tick()")

    def push_parameter_definitions(self, frame: Frame) -> None:
        """Called where the body of a macro begins."""
        super().push_parameter_definitions(frame)
        super().writeline("tick()")

    def write_commons(self) -> None:
        """Called where the body of a template or block begins."""
        super().write_commons()
        super().writeline("tick = context.tick")
        super().writeline("tick()")


class BoundedContext(Context):
    """The variables of one rendering, which has to end some time.

    `tick` is called at each step; raises jinja2.TemplateError where no time is left.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Some 40 ns a step: in C but for each fourth.
        self.tick = itertools.chain.from_iterable(_looks()).__next__

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        """The context of a block: no new time for it."""
        made = super().derived(locals)
        if isinstance(made, BoundedContext):
            made.tick = self.tick
        return made


def _looks() -> Iterator[Iterable[None]]:
    """Looks at the clock now and then."""
    last = time.monotonic() + LIMIT_S
    while time.monotonic() <= last:
        yield itertools.repeat(None, EVERY)
    raise jinja2.TemplateError("the template took too long")


def check_numbers(*given: object) -> None:
    """Raises jinja2.TemplateError for a number that is too large for a size."""
    for value in given:
        if type(value) is int and not -MAX_NUMBER <= value <= MAX_NUMBER:
            raise jinja2.TemplateError("a number is too large here")


def sized(filter: Callable[..., Any]) -> Callable[..., Any]:
    """The same filter, of numbers that are no larger than they may be.

    What is filtered may be any number; for some filters something comes before it.
    """
    first = 2 if hasattr(filter, "jinja_pass_arg") else 1

    @functools.wraps(filter)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check_numbers(*args[first:], *kwargs.values())
        return filter(*args, **kwargs)

    return checked
