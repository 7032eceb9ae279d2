"""One body, several engines: each profile's own ids, in its workers' blocks."""

import itertools
import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.request.prompt import Kind, Space, render
from kvindex.blocks import chain, unpack_ids
from render import Renderer, Unrenderable
from tests.collected import Raising, uncollected

PARTS = {
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What do harbours have in common? " * 9},
                {"type": "text", "text": "And the ships in them? " * 9},
            ],
        }
    ]
}
KEYS = {("vllm", 16), ("sglang", 16), ("sglang", 64)}
ROOT = 7
SPACES = dict.fromkeys(("vllm", "sglang", "trtllm"), Space(root=ROOT))


class Refusing:
    """A renderer that renders nothing."""

    profile = "trtllm"

    def render_chat(self, body: bytes) -> None:
        raise Unrenderable("media", "an image")


def of(renderer: Renderer, *profiles: str) -> dict[str, Any]:
    """The renderers of these profiles."""
    return {profile: renderer.with_profile(profile) for profile in profiles}


def test_each_profile_has_its_own_blocks(renderer: Renderer) -> None:
    """The engines join parts differently, so nothing but the beginning is equal."""
    renderers = of(renderer, "sglang", "vllm")
    body: Any = PARTS
    prompt = render(renderers, body, "chat", keys=KEYS, spaces=SPACES)
    assert prompt.blocks.keys() == KEYS
    for (profile, size), rendering in prompt.blocks.items():
        rendered = renderers[profile].render_chat(PARTS)
        assert rendering.hashes == chain(rendered.token_ids, size, ROOT)
        assert rendering.token_count == len(rendered)
        assert (rendering.profile, rendering.block_size) == (profile, size)
    vllm, sglang = prompt.blocks["vllm", 16], prompt.blocks["sglang", 16]
    assert vllm.hashes[0] == sglang.hashes[0]
    assert vllm.hashes[-1] != sglang.hashes[-1]


def test_a_profile_that_refuses(renderer: Renderer) -> None:
    """The others' workers are matched by ids; where all refuse, the first says why."""
    refusing: Any = Refusing()
    body: Any = PARTS
    keys = {("vllm", 16), ("trtllm", 32)}
    renderers = {"trtllm": refusing} | of(renderer, "vllm")
    prompt = render(renderers, body, "chat", keys=keys, spaces=SPACES)
    assert prompt.blocks.keys() == {("vllm", 16)}
    with pytest.raises(Unrenderable, match="an image"):
        render({"trtllm": refusing}, body, "chat", keys=keys, spaces=SPACES)


def test_a_refusal_lets_go_of_the_body() -> None:
    """Its traceback has frames that have the body: none of them may have it."""
    raising = Raising()

    class Noting(Refusing):
        def render_chat(self, body: bytes) -> None:
            raising.error(Unrenderable("media", "an image"))

    body, noting = cast(Any, PARTS), cast(Any, Noting())
    with uncollected():
        with pytest.raises(Unrenderable):
            render({"trtllm": noting}, body, "chat", keys=KEYS, spaces=SPACES)
        assert not raising.left


@pytest.mark.parametrize(
    ("kind", "body", "count"),
    [
        ("completion", {"prompt": ["short", "a much longer prompt", "x"]}, 3),
        ("completion", {"prompt": [1, 2, 3]}, 1),
        ("responses", {"input": "hello", "instructions": "Be kind."}, 1),
    ],
)
def test_other_bodies(
    renderer: Renderer, kind: Kind, body: dict[str, Any], count: int
) -> None:
    """Of several prompts the longest is described."""
    given: Any = body
    prompt = render(
        of(renderer, "vllm"), given, kind, keys=[("vllm", 2)], spaces=SPACES
    )
    assert prompt.count == count
    (rendering,) = prompt.blocks.values()
    assert rendering.token_count == len(prompt.rendered) >= 3


def test_ids_are_made_ready_where_they_are_wanted(renderer: Renderer) -> None:
    """In each engine's own field, by its own rules; and for no other profile."""
    renderers = of(renderer, "sglang", "trtllm", "vllm")
    body = json.dumps(PARTS).encode()
    prompt = render(
        renderers, body, "chat", keys=KEYS, spaces=SPACES, forward={"vllm", "sglang"}
    )
    assert prompt.ids.keys() == prompt.forwardable.keys() == {"vllm", "sglang"}
    for profile, ids in prompt.ids.items():
        sent = json.loads(ids.into(body))
        for name in renderers[profile].answers.ids_field:
            sent = sent[name]
        assert sent == unpack_ids(renderers[profile].render_chat(PARTS).token_ids)
        assert prompt.forwardable[profile].features == {"parts"}
        assert prompt.forwardable[profile].never is None
        assert not prompt.forwardable[profile].shows_mode


def test_a_prompt_that_is_ready_goes_along_too(renderer: Renderer) -> None:
    """It is not rendered again; its ids are for whoever takes chats beside ids."""
    body = json.dumps(PARTS).encode()
    ready = {"vllm": [renderer.render_chat({"messages": [{"role": "user"}]})]}
    prompt = render(
        of(renderer, "vllm"),
        body,
        "chat",
        keys=KEYS,
        spaces=SPACES,
        forward={"vllm"},
        ready=ready,
    )
    assert prompt.rendered == ready["vllm"][0]
    sent = json.loads(prompt.ids["vllm"].into(body))
    ids = sent["kv_transfer_params"]["prompt_token_ids"]
    assert ids == unpack_ids(ready["vllm"][0].token_ids)


@pytest.mark.parametrize(
    ("fields", "never"),
    [
        ({"echo": True}, "echo"),
        ({"kv_transfer_params": {}, "input_ids": [1]}, "own_ids"),
        ({"kv_transfer_params": 5}, "unknown_field"),
    ],
)
def test_ids_that_never_go(
    renderer: Renderer, fields: dict[str, Any], never: str
) -> None:
    """They are not even written; blocks are there all the same."""
    body = json.dumps(PARTS | fields).encode()
    prompt = render(
        of(renderer, "vllm"), body, "chat", keys=KEYS, spaces=SPACES, forward={"vllm"}
    )
    assert prompt.ids == {}
    assert prompt.forwardable["vllm"].never == never
    assert prompt.blocks


def test_a_field_that_is_named_twice(renderer: Renderer) -> None:
    """Which one an engine reads is not known: none for that engine; others get them."""
    body = (
        b'{"kv_transfer_params":{},"kv_transfer_params":{},'
        + (json.dumps(PARTS).encode()[1:])
    )
    profiles = {"vllm", "sglang"}
    renderers = of(renderer, *sorted(profiles))
    prompt = render(renderers, body, "chat", keys=KEYS, spaces=SPACES, forward=profiles)
    assert prompt.forwardable["vllm"].never == "ids_field"
    assert prompt.ids.keys() == {"sglang"}


def test_a_mode_is_seen_in_the_text(renderer: Renderer) -> None:
    """A template that closes the thinking at once tells a parser its mode."""
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    for fields, shows in (({}, False), (off, True)):
        body = json.dumps(PARTS | fields).encode()
        prompt = render(
            of(renderer, "vllm"),
            body,
            "chat",
            keys=KEYS,
            spaces=SPACES,
            forward={"vllm"},
        )
        assert prompt.forwardable["vllm"].shows_mode is shows


def test_a_body_is_read_once_and_changed_by_nobody(renderer: Renderer) -> None:
    """Every profile renders what the client wrote, whoever came before it."""
    function = {"name": "tide", "arguments": '{"at": [1, {"b": null}]}'}
    call = {"id": "1", "type": "function", "function": function}
    tool = {"type": "function", "function": {"name": "tide", "strict": None}}
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        *PARTS["messages"],
        {"role": "assistant", "content": None, "reasoning": "x", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "high", "name": "tide"},
        {"role": "assistant", "content": "It is "},
    ]
    body = json.dumps({"messages": messages, "tools": [tool]}).encode()
    names = ("sglang", "trtllm", "vllm")
    for order in itertools.permutations(names):
        renderers = of(renderer, *order)
        prompt = render(renderers, body, "chat", keys=(), spaces=SPACES, forward=names)
        for profile, ids in prompt.ids.items():
            alone = renderers[profile].render_chat(body).token_ids
            assert json.loads(ids.encoded) == unpack_ids(alone)
        assert prompt.ids.keys() == set(names)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
)
MESSAGES = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "developer", "tool"]),
        "content": st.text(max_size=9)
        | st.lists(st.builds(lambda t: {"type": "text", "text": t}, st.text())),
    },
    optional={"name": st.text(max_size=3), "reasoning": st.text(max_size=3)},
)
FIELDS = st.sampled_from(
    [
        "model", "seed", "tools", "stop", "documents", "kv_transfer_params", "echo",
        "prompt_token_ids", "input_ids", "tool_choice", "chat_template_kwargs", "x",
    ]
)  # fmt: skip
BODIES = st.builds(
    lambda messages, fields: {"messages": messages} | fields,
    st.lists(MESSAGES, min_size=1, max_size=3),
    st.dictionaries(FIELDS, JSON, max_size=4),
)


@given(BODIES, st.sampled_from([None, 2]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_body_with_ids_says_what_it_said(
    renderer: Renderer, asked: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    """For every engine: the client's fields, and ids where none of them was its own."""
    renderers = of(renderer, "sglang", "trtllm", "vllm")
    body = json.dumps(asked, indent=indent, ensure_ascii=ascii_only).encode()
    try:
        prompt = render(
            renderers, body, "chat", keys=(), spaces=SPACES, forward=renderers.keys()
        )
    except Unrenderable:
        return
    for profile, known in prompt.forwardable.items():
        assert (known.never is None) == (profile in prompt.ids)
    for profile, ids in prompt.ids.items():
        sent = json.loads(ids.into(body))
        name, *inner = renderers[profile].answers.ids_field
        value = sent.pop(name)
        if inner:
            assert value.pop(inner[0])
            assert value == (asked.get(name) or {})
        assert sent == {n: v for n, v in asked.items() if n != name}
        assert not {"input_ids", "prompt_token_ids"} & asked.keys() - {
            n for n, v in asked.items() if v is None
        }
