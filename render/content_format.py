"""Does a chat template loop over the parts of a message's content?

vLLM hands a template that does the content as a list of parts ("openai"), any other
one a plain string ("string"). The template is parsed, never run: names are followed
from `messages` through assignments, slices, filters, tests and namespaces to loops
over the messages, and from there to a loop over their content. The rules are those of
vLLM's detection (`vllm/renderers/hf.py`), its blind spots included.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, TypeGuard

from jinja2 import nodes

ContentFormat = Literal["string", "openai"]
CONTENT_FORMATS: Mapping[str, ContentFormat | None] = {
    "auto": None,
    "string": "string",
    "openai": "openai",
}
"""The values of the option; None is what the template wants."""
Alias = tuple[str, ...]
"""A variable ("name",), or a namespace's attribute ("ns", "name")."""


class _Unreadable(Exception):
    """A construct the detection gives up on; the format is then "string"."""


def detect_content_format(template: nodes.Template) -> ContentFormat:
    """The format a parsed template wants."""
    try:
        return "openai" if _loops_over_content(template) else "string"
    except _Unreadable:
        return "string"


def looped_contents(template: nodes.Template) -> frozenset[str]:
    """The variables whose `content` a parsed template loops over."""
    loops = (_accessed(_bare(loop.iter)) for loop in template.find_all(nodes.For))
    return frozenset(
        found[0].name
        for found in loops
        if found and found[1] == "content" and isinstance(found[0], nodes.Name)
    )


def _loops_over_content(root: nodes.Template) -> bool:
    messages = _message_variables(root)
    macro_loops = dict(_loops_in_macros(root, messages))
    for loop in root.find_all(nodes.For):
        parameters = macro_loops.get(id(loop))
        # Outside of macros a variable called "content" is taken for it.
        names = {"content"} if parameters is None else parameters
        by_name = isinstance(loop.iter, nodes.Name) and loop.iter.name in names
        if by_name or _is_content(loop.iter, messages):
            _target_name(loop.target)
            return True
    return False


def _message_variables(root: nodes.Template) -> set[str]:
    """The variables that loops over the messages set."""
    aliases = _aliases(root)
    return {
        _target_name(loop.target)
        for loop in root.find_all(nodes.For)
        if _alias_of(loop.iter) in aliases
    }


def _aliases(root: nodes.Template) -> set[Alias]:
    """Everything that holds the messages, or some of them."""
    found: set[Alias] = {("messages",)}
    assigned = [
        (target, source)
        for assignment in root.find_all(nodes.Assign)
        for target, source in _assigned(assignment)
    ]
    while True:
        reached = {target for target, source in assigned if source in found}
        if reached <= found:
            return found
        found |= reached


def _assigned(assignment: nodes.Assign) -> Iterator[tuple[Alias, Alias]]:
    """The (target, source) pairs of one assignment that copy a name or attribute."""
    target, value = assignment.target, assignment.node
    if isinstance(target, nodes.Name) and _is_namespace(value):
        for keyword in value.kwargs:
            source = _alias_of(keyword.value)
            if source is not None:
                yield (target.name, keyword.key), source
        return
    source = _alias_of(value)
    if source is None:
        return
    if isinstance(target, nodes.Name):
        yield (target.name,), source
    elif isinstance(target, nodes.NSRef):
        yield (target.name, target.attr), source


def _is_namespace(node: nodes.Node) -> TypeGuard[nodes.Call]:
    return (
        isinstance(node, nodes.Call)
        and isinstance(node.node, nodes.Name)
        and node.node.name == "namespace"
    )


def _alias_of(node: nodes.Node | None) -> Alias | None:
    """The name an expression hands on, through filters, tests and slices."""
    node = _bare(node)
    if isinstance(node, nodes.Name):
        return (node.name,)
    accessed = _accessed(node)
    if accessed is not None and isinstance(accessed[0], nodes.Name):
        return (accessed[0].name, accessed[1])
    return None


def _is_content(node: nodes.Node | None, messages: set[str]) -> bool:
    """Whether an expression is the content of one of these message variables."""
    accessed = _accessed(_bare(node))
    return (
        accessed is not None
        and accessed[1] == "content"
        and isinstance(accessed[0], nodes.Name)
        and accessed[0].name in messages
    )


def _bare(node: nodes.Node | None) -> nodes.Node | None:
    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    return node


def _accessed(node: nodes.Node | None) -> tuple[nodes.Node, str] | None:
    """(`x`, "y") of `x.y` or `x['y']`."""
    if isinstance(node, nodes.Getattr):
        return node.node, node.attr
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return node.node, str(node.arg.value)
    return None


def _loops_in_macros(
    root: nodes.Template, messages: set[str]
) -> Iterator[tuple[int, set[str]]]:
    """Each loop inside a macro, with the parameters that are given message content."""
    calls = list(root.find_all(nodes.Call))
    for macro in root.find_all(nodes.Macro):
        parameters = {
            name
            for call in calls
            if isinstance(call.node, nodes.Name) and call.node.name == macro.name
            for name in _content_parameters(macro, call, messages)
        }
        for loop in macro.find_all(nodes.For):
            yield id(loop), parameters


def _content_parameters(
    macro: nodes.Macro, call: nodes.Call, messages: set[str]
) -> Iterator[str]:
    for parameter, value in zip(macro.args, call.args, strict=False):
        if _is_content(value, messages):
            yield parameter.name
    for keyword in call.kwargs:
        if _is_content(keyword.value, messages):
            yield keyword.key


def _target_name(target: nodes.Node) -> str:
    if not isinstance(target, nodes.Name):
        raise _Unreadable("a loop with several targets")
    return target.name
