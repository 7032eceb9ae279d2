"""Bodies in, ids out: chats, completions, truncation, options."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kvindex.blocks import unpack_ids
from render import Rendered, Renderer, Unrenderable
from tests.render import models

USER = {"role": "user", "content": "hi"}


def _ids(rendered: Rendered) -> list[int]:
    return unpack_ids(rendered.token_ids)


def test_chat(renderer: Renderer) -> None:
    """A chat gives ids, their text, and the time it took."""
    rendered = renderer.render_chat(b'{"messages": [{"role":"user","content":"hi"}]}')
    assert rendered.text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert _ids(rendered) == [151644, 872, 198, 6023, 151645, 198, 151644, 77091, 198]
    assert len(rendered) == 9
    assert rendered.profile == renderer.profile == "vllm"
    assert rendered.template_s > 0
    assert rendered.tokenize_s > 0
    assert renderer.detokenize(rendered.token_ids) == "user\nhi\nassistant\n"
    assert renderer.detokenize(_ids(rendered), skip_special_tokens=False) == (
        rendered.text
    )


def test_what_is_loaded(renderer: Renderer, qwen3: Path) -> None:
    """The renderer tells which model it renders and with what."""
    assert renderer.model.path == qwen3
    assert renderer.model.model_type == "qwen3"
    assert renderer.model.max_length == 40960
    assert renderer.encoder_name in ("fastokens", "tokenizers")
    assert renderer.vocabulary_size == 151_669


def test_a_mapping_is_not_changed(renderer: Renderer) -> None:
    """A decoded body renders as its bytes do, and stays as it was."""
    body: dict[str, Any] = {
        "messages": [
            {"role": "system", "content": "x-anthropic-billing-header: 1\nS"},
            {"role": "developer", "content": [{"type": "text", "text": "D"}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "r",
                "tool_calls": [{"id": "1", "function": {"name": "f"}}],
            },
            USER,
        ],
        "tools": [{"function": {"name": "f"}}],
        "unknown": object(),
    }
    before = repr(body)
    mapped = renderer.render_chat(body)
    assert repr(body) == before
    del body["unknown"]
    assert _ids(renderer.render_chat(json.dumps(body).encode())) == _ids(mapped)


@pytest.mark.parametrize("tokens", [0, 1, 5, 8, 9, 100, -1, None])
def test_truncation(renderer: Renderer, tokens: int | None) -> None:
    """The last tokens are kept, or the first ones; -1 leaves a prompt that fits."""
    whole = _ids(renderer.render_chat({"messages": [USER]}))
    kept = len(whole) if tokens in (None, -1) else min(tokens or 0, len(whole))
    body: dict[str, Any] = {"messages": [USER], "truncate_prompt_tokens": tokens}
    assert _ids(renderer.render_chat(body)) == whole[len(whole) - kept :]
    body["truncation_side"] = "right"
    assert _ids(renderer.render_chat(body)) == whole[:kept]


@pytest.mark.parametrize(
    "body",
    [
        {"truncate_prompt_tokens": -2},
        {"truncate_prompt_tokens": "x"},
        {"truncate_prompt_tokens": True},
        {"truncation_side": "middle"},
        {"add_special_tokens": "x"},
    ],
)
def test_bad_fields(renderer: Renderer, body: dict[str, object]) -> None:
    """Fields no worker takes are refused, for chats and completions."""
    with pytest.raises(Unrenderable, match="bad_field"):
        renderer.render_chat({"messages": [USER], **body})
    with pytest.raises(Unrenderable, match="bad_field"):
        renderer.render_completion({"prompt": "x", **body})


@pytest.fixture(scope="module", params=["auto", "tokenizers"])
def bos(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Renderer:
    """A model whose tokenizer puts a BOS before every text."""
    path = models.save(tmp_path_factory.mktemp("bos"), models.metaspace())
    return Renderer.load(path, encoder=request.param)


def test_beginning_of_sequence(bos: Renderer) -> None:
    """Completions get the tokenizer's BOS, chats do not: their template writes it."""
    start = _ids(bos.render_completion({"prompt": "<s>"})[0])[0]
    prompt = {"prompt": "hello world"}
    with_bos = _ids(bos.render_completion(prompt)[0])
    assert with_bos[0] == start
    bare = bos.render_completion({**prompt, "add_special_tokens": False})
    assert _ids(bare[0]) == with_bos[1:]
    chat = {"messages": [USER]}
    assert _ids(bos.render_chat(chat))[0] != start
    special = _ids(bos.render_chat({**chat, "add_special_tokens": True}))
    assert special == [start, *_ids(bos.render_chat(chat))]


def test_truncation_keeps_the_beginning_of_sequence(bos: Renderer) -> None:
    """As tokenizers truncate: the BOS stays, and counts."""
    whole = _ids(bos.render_completion({"prompt": "hello world hello"})[0])
    cut = bos.render_completion(
        {"prompt": "hello world hello", "truncate_prompt_tokens": 4}
    )
    assert _ids(cut[0]) == [whole[0], *whole[-3:]]


def test_completions(renderer: Renderer) -> None:
    """A text, ids, or a list of either: one rendering for each prompt, in order."""
    hello, world = (
        _ids(renderer.render_completion({"prompt": text})[0])
        for text in ("Hello", "World foo")
    )
    both = renderer.render_completion({"prompt": ["Hello", "World foo"]})
    assert [_ids(r) for r in both] == [hello, world]
    assert [r.text for r in both] == ["Hello", "World foo"]
    given_ids = renderer.render_completion({"prompt": [1, 2, 4_294_967_295]})
    assert [_ids(r) for r in given_ids] == [[1, 2, 4_294_967_295]]
    assert given_ids[0].text is None
    lists = renderer.render_completion({"prompt": [[1], [2, 3]]})
    assert [_ids(r) for r in lists] == [[1], [2, 3]]


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        "",
        [],
        [""],
        [[]],
        ["a", [1]],
        [[1], "a"],
        [1, "a"],
        [1, [1]],
        [-1],
        [1 << 32],
        [1.5],
        [True],
        [None],
        {"a": 1},
        5,
    ],
)
def test_no_prompt(renderer: Renderer, prompt: object) -> None:
    """Anything else is no prompt."""
    with pytest.raises(Unrenderable) as caught:
        renderer.render_completion({"prompt": prompt})
    assert caught.value.reason == "bad_prompt"


def test_prompt_embeddings(renderer: Renderer) -> None:
    """A prompt of embeddings has no ids."""
    with pytest.raises(Unrenderable, match="media"):
        renderer.render_completion({"prompt": "x", "prompt_embeds": "AAAA"})


def test_ids_of_the_client(renderer: Renderer) -> None:
    """Ids a client forwards itself are the prompt, unless there are media beside."""
    body = {"messages": [USER], "kv_transfer_params": {"prompt_token_ids": [7, 8]}}
    assert _ids(renderer.render_chat(body)) == [7, 8]
    body["messages"] = [{"role": "user", "content": [{"type": "image_url"}]}]
    with pytest.raises(Unrenderable, match="media"):
        renderer.render_chat(body)


def test_default_kwargs_and_format(tmp_path: Path) -> None:
    """The server's template variables and content format are those of the worker."""
    template = "{{ style }}:{{ messages[0].content }}"
    path = models.save(
        tmp_path, models.byte_level(), tokenizer_config={"chat_template": template}
    )
    renderer = Renderer.load(
        path,
        default_chat_template_kwargs={"style": "plain"},
        chat_template_content_format="openai",
    )
    body: dict[str, Any] = {"messages": [USER]}
    parts = "[{'type': 'text', 'text': 'hi'}]"
    assert renderer.render_chat(body).text == f"plain:{parts}"
    body["chat_template_kwargs"] = {"style": "loud"}
    assert renderer.render_chat(body).text == f"loud:{parts}"


def test_many_threads(renderer: Renderer) -> None:
    """One renderer serves many threads; a conversation that grows stays exact."""
    bodies = [
        {
            "messages": [
                {"role": ("user", "assistant")[i % 2], "content": f"turn {i} é 世界"}
                for i in range(turns)
            ]
        }
        for turns in range(1, 40, 2)
    ]
    expected = [_ids(renderer.render_chat(body)) for body in bodies]
    wrong: list[int] = []

    def render_all() -> None:
        for number, body in enumerate(bodies):
            if _ids(renderer.render_chat(body)) != expected[number]:
                wrong.append(number)

    threads = [threading.Thread(target=render_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
