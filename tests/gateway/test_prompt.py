"""One body, several engines: each profile's own ids, in its workers' blocks."""

from typing import Any

import pytest

from gateway.prompt import Kind, render
from kvindex.blocks import chain
from render import Renderer, Unrenderable

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
    prompt = render(renderers, body, "chat", keys=KEYS, root=ROOT)
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
    prompt = render(renderers, body, "chat", keys=keys, root=ROOT)
    assert prompt.blocks.keys() == {("vllm", 16)}
    with pytest.raises(Unrenderable, match="an image"):
        render({"trtllm": refusing}, body, "chat", keys=keys, root=ROOT)


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
    prompt = render(of(renderer, "vllm"), given, kind, keys=[("vllm", 2)], root=ROOT)
    assert prompt.count == count
    (rendering,) = prompt.blocks.values()
    assert rendering.token_count == len(prompt.rendered) >= 3
