"""What other systems got wrong about tokenizers and templates, report by report."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from tokenizers import Tokenizer

from kvindex.blocks import Namespace, chain, pack_ids, unpack_ids
from render import Renderer, Unrenderable
from tests.render import models

USER = {"role": "user", "content": "hello world"}
BLOCK = 4


def _model(path: Path, template: str | None = models.CHATML, **config: Any) -> Renderer:
    tokenizer_config = {} if template is None else {"chat_template": template}
    models.save(
        path,
        models.byte_level(),
        config={"model_type": "tiny", **config},
        tokenizer_config={"bos_token": "<|endoftext|>", **tokenizer_config},
    )
    return Renderer.load(path, encoder="tokenizers")


def _hashes(ids: bytes) -> list[int]:
    return chain(ids, BLOCK, Namespace(model="m").root())


def _shared_blocks(left: Sequence[int], right: Sequence[int]) -> int:
    pairs = zip(_hashes(pack_ids(left)), _hashes(pack_ids(right)), strict=False)
    return sum(1 for ours, theirs in pairs if ours == theirs)


def test_each_model_has_its_own_tokenizer(tmp_path: Path, qwen3: Path) -> None:
    """Two models in one process, rendered in turn."""
    tiny, large = _model(tmp_path), Renderer.load(qwen3, encoder="tokenizers")
    references = [
        Tokenizer.from_file(str(r.model.tokenizer_file)) for r in (tiny, large)
    ]
    for text in ("hello world", "Привет", "12345"):
        for renderer, reference in zip((tiny, large), references, strict=True):
            (rendered,) = renderer.render_completion({"prompt": text})
            assert unpack_ids(rendered.token_ids) == reference.encode(text).ids
    assert tiny.vocabulary_size != large.vocabulary_size


def test_chats_are_tokenized_not_only_prompts(tmp_path: Path) -> None:
    """The same chat has the same blocks each time, through the template."""
    renderer = _model(tmp_path)
    found = [_hashes(renderer.render_chat({"messages": [USER]}).token_ids)]
    found += [
        _hashes(renderer.render_chat({"messages": [USER], "user": "x"}).token_ids)
        for _ in range(3)
    ]
    assert found[0]
    assert found == found[:1] * 4


@pytest.mark.parametrize("profile", ["vllm", "trtllm", "sglang"])
def test_gpt_oss_is_not_rendered_by_its_template(tmp_path: Path, profile: str) -> None:
    """A template that lies with the model is not what its workers use."""
    renderer = _model(tmp_path, model_type="gpt_oss").with_profile(profile)
    with pytest.raises(Unrenderable) as caught:
        renderer.render_chat({"messages": [USER]})
    assert caught.value.reason == "model_type"


def test_no_chat_template(tmp_path: Path) -> None:
    """Chats have no ids, for a reason; the model loads and completions have theirs."""
    renderer = _model(tmp_path, None)
    with pytest.raises(Unrenderable) as caught:
        renderer.render_chat({"messages": [USER]})
    assert caught.value.reason == "no_template"
    assert len(renderer.render_completion({"prompt": "hello"})[0]) > 0


@pytest.mark.parametrize("where", ["tokenizer_config.json", "chat_template.jinja"])
def test_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A directory is all that is needed, wherever its template is."""
    monkeypatch.setattr("socket.socket.connect", None)
    template = models.CHATML
    inside = where == "tokenizer_config.json"
    models.save(
        tmp_path,
        models.byte_level(),
        tokenizer_config={"chat_template": template} if inside else {},
        files={} if inside else {where: template},
    )
    renderer = Renderer.load(str(tmp_path))
    assert len(renderer.render_chat({"messages": [USER]})) > 0


def test_a_gated_model_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are there need no token and no question."""
    monkeypatch.setattr("socket.socket.connect", None)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    repository = tmp_path / "models--meta-llama--gated"
    models.save(repository / "snapshots" / ("b" * 40), models.byte_level())
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("b" * 40)
    renderer = Renderer.load("meta-llama/gated")
    assert len(renderer.render_chat({"messages": [USER]})) > 0


def test_one_beginning_of_sequence(tmp_path: Path) -> None:
    """A template that writes the BOS, and a tokenizer that would add another."""
    tokenizer = models.metaspace()
    template = "{{ bos_token }}" + models.CHATML
    config: dict[str, object] = {"bos_token": "<s>", "chat_template": template}
    models.save(tmp_path, tokenizer, tokenizer_config=config)
    renderer = Renderer.load(tmp_path)
    (bos,) = tokenizer.encode("<s>", add_special_tokens=False).ids
    ids = unpack_ids(renderer.render_chat({"messages": [USER]}).token_ids)
    assert (ids[0], ids.count(bos)) == (bos, 1)
    (rendered,) = renderer.render_completion({"prompt": "<s>hello"})
    assert unpack_ids(rendered.token_ids) == tokenizer.encode("<s>hello").ids


READS_ARGUMENTS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}"
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}|"
    "{% endfor %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"city":"Paris"}', "city=Paris;|"),
        ("", "|"),
        ("not json", "|"),
        ("[1]", "|"),
        (None, "|"),
    ],
)
def test_arguments_are_an_object(tmp_path: Path, arguments: Any, text: str) -> None:
    """A history as the API has it, and a template that goes through the arguments."""
    renderer = _model(tmp_path, READS_ARGUMENTS)
    function = {"name": "f", "arguments": arguments}
    call = {"id": "1", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert renderer.render_chat({"messages": [USER, message]}).text == text


def test_json_is_not_escaped_for_html(tmp_path: Path) -> None:
    """`tojson` writes what transformers' does."""
    import transformers

    template = "{{ messages[1].tool_calls[0].function.arguments | tojson }}"
    renderer = _model(tmp_path, template)
    arguments = {"q": "a<b & 'c' > \"d\" é"}
    function = {"name": "f", "arguments": json.dumps(arguments)}
    call = {"id": "1", "type": "function", "function": function}
    chat = {"messages": [USER, {"role": "assistant", "tool_calls": [call]}]}
    backend: Any = transformers.PreTrainedTokenizerFast
    reference = backend(tokenizer_object=models.byte_level())
    shown = {**call, "function": {**function, "arguments": arguments}}
    messages = [USER, {"role": "assistant", "content": "", "tool_calls": [shown]}]
    text = reference.apply_chat_template(
        messages, chat_template=template, tokenize=False
    )
    ids = reference(text, add_special_tokens=False)["input_ids"]
    assert unpack_ids(renderer.render_chat(chat).token_ids) == ids
    assert "a<b & 'c' >" in text


def test_overlap_ends_where_the_second_turn_differs(tmp_path: Path) -> None:
    """A template that puts a space before the assistant's text."""
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
        "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
    )
    renderer = _model(tmp_path, template)
    first = unpack_ids(renderer.render_chat({"messages": [USER]}).token_ids)
    (said,) = renderer.render_completion({"prompt": "world hello"})
    held = first + unpack_ids(said.token_ids)
    answer = {"role": "assistant", "content": "world hello"}
    messages = [USER, answer, USER]
    second = unpack_ids(renderer.render_chat({"messages": messages}).token_ids)
    same = next(i for i, (a, b) in enumerate(zip(held, second, strict=False)) if a != b)
    assert len(first) <= same < len(held)
    assert _shared_blocks(held, second) == same // BLOCK


def test_other_ids_of_the_same_text_are_no_overlap(tmp_path: Path) -> None:
    """Generated ids need not be those of their text: blocks are of ids."""
    renderer = _model(tmp_path)
    (rendered,) = renderer.render_completion(
        {"prompt": "hello world this is a message"}
    )
    ids = unpack_ids(rendered.token_ids)
    letters = [
        unpack_ids(renderer.render_completion({"prompt": letter})[0].token_ids)[0]
        for letter in "hello"
    ]
    generated = letters + ids
    assert renderer.detokenize(generated).startswith("hello")
    assert _shared_blocks(generated, ids) == 0


def test_the_servers_template_variables(tmp_path: Path) -> None:
    """They hold for each request, and a request may override them."""
    template = "{{ 'thinks' if enable_thinking else 'does not' }}"
    _model(tmp_path, template)
    for profile in ("vllm", "trtllm", "sglang"):
        renderer = Renderer.load(
            tmp_path,
            profile=profile,
            encoder="tokenizers",
            default_chat_template_kwargs={"enable_thinking": False},
        )
        chat: dict[str, Any] = {"messages": [USER]}
        assert renderer.render_chat(chat).text == "does not"
        chat["chat_template_kwargs"] = {"enable_thinking": True}
        assert renderer.render_chat(chat).text == "thinks"
