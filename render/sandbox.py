"""The sandbox that chat templates run in: jinja2's, but stricter and faster.

Stricter as what a template asks for at once is bounded, and its time (`bounds.py`).

Faster as most of the time of jinja2's own goes into asking again whether an attribute
is safe, and into exceptions of dicts that have no such attribute.
"""

from typing import Any

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from render.bounds import SIZED, BoundedContext, TickingCode, check_numbers, sized

MAX_REPEATED = 64 * 1024 * 1024  # characters, or items of a list
MAX_BITS = 65_536  # of a number
MAX_REMEMBERED = 4096
DICT_ATTRIBUTES = frozenset(dir(dict))


class Sandbox(ImmutableSandboxedEnvironment):
    """Immutable; `"x" * 1000000000` and `9 ** 999999` are refused too, and the like."""

    intercepted_binops = frozenset({"*", "**"})
    code_generator_class = TickingCode
    context_class = BoundedContext

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._safe: dict[tuple[type, str], bool] = {}
        del self.globals["lipsum"]  # at random, and as long as one likes
        for name in SIZED:
            self.filters[name] = sized(self.filters[name])

    def call(
        __self,
        __context: Context,
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """As jinja2's; raises jinja2.TemplateError for widths that are too large.

        Only methods of texts and numbers take such; a macro may be given any number.
        """
        if isinstance(getattr(__obj, "__self__", None), str | bytes | int):
            check_numbers(*args, *kwargs.values())
        if not __self.is_safe_callable(__obj):
            raise SecurityError(f"{__obj!r} is not safely callable")
        return __context.call(__obj, *args, **kwargs)

    def call_filter(
        self, name: str, value: Any, args: Any = None, kwargs: Any = None,
        context: Context | None = None, eval_ctx: Any = None,
    ) -> Any:  # fmt: skip
        """As jinja2's; `map` calls it for each item, and looks at the clock."""
        if isinstance(context, BoundedContext):
            context.tick()
        return super().call_filter(name, value, args, kwargs, context, eval_ctx)

    def call_test(
        self, name: str, value: Any, args: Any = None, kwargs: Any = None,
        context: Context | None = None, eval_ctx: Any = None,
    ) -> Any:  # fmt: skip
        """As jinja2's; `select` calls it for each item, and looks at the clock."""
        if isinstance(context, BoundedContext):
            context.tick()
        return super().call_test(name, value, args, kwargs, context, eval_ctx)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """As jinja2's, which depends on the type of the object only."""
        key = (type(obj), attr)
        safe = self._safe.get(key)
        if safe is None:
            safe = super().is_safe_attribute(obj, attr, value)
            if len(self._safe) < MAX_REMEMBERED:
                self._safe[key] = safe
        return safe

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As jinja2's: the attribute if there is one, else the item."""
        if type(obj) is not dict or attribute in DICT_ATTRIBUTES:
            return super().getattr(obj, attribute)
        try:
            return obj[attribute]
        except KeyError:
            return self.undefined(obj=obj, name=attribute)

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        """Raises jinja2.TemplateError for what would take too much memory or time."""
        if _too_large(operator, left, right):
            raise jinja2.TemplateError(f"the result of {operator} is too large")
        return super().call_binop(context, operator, left, right)


def _too_large(operator: str, left: Any, right: Any) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        bits = bits * right if operator == "**" else bits + right.bit_length()
        return bits > MAX_BITS
    if operator == "**":
        return False  # of a float, that overflows by itself
    for repeated, times in ((left, right), (right, left)):
        if isinstance(repeated, str | bytes | list | tuple) and isinstance(times, int):
            return len(repeated) * times > MAX_REPEATED
    return False
