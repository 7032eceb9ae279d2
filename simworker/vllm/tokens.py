"""`/tokenize` and `/detokenize`: what a worker's rendering is probed with."""

from render import Renderer
from render.fields import TOKENIZE_CHAT
from simworker.errors import not_valid
from simworker.planning import Planner, token_list
from simworker.request import Body

READ = frozenset({"messages", *TOKENIZE_CHAT})
"""Not the fields of a chat that reach its prompt otherwise: `reasoning_effort`,
`documents`, `tool_choice`, `truncate_prompt_tokens`."""


def tokenize(planner: Planner, body: Body, *, max_model_len: int) -> dict[str, object]:
    """The answer to a prompt or to messages. Raises ApiError."""
    if "messages" in body:
        token_ids = token_list(planner.render_chat(_chat(body)))
    elif isinstance(body.get("prompt"), str):
        (rendered,) = planner.render_completion(body)
        token_ids = token_list(rendered)
    else:
        raise not_valid("missing", "body.prompt", "Field required", body)
    strings = None
    if body.get("return_token_strs") is True:
        strings = planner.token_strings(token_ids)
    return {
        "count": len(token_ids),
        "max_model_len": max_model_len,
        "tokens": token_ids,
        "token_strs": strings,
    }


def _chat(body: Body) -> Body:
    """The chat as this route reads it: what it does not know it ignores."""
    chat = {name: v for name, v in body.items() if name in READ}
    messages = chat["messages"]
    if isinstance(messages, list):  # it does not know the older name of the reasoning
        chat["messages"] = [
            {name: v for name, v in message.items() if name != "reasoning_content"}
            if isinstance(message, dict)
            else message
            for message in messages
        ]
    return chat


def detokenize(renderer: Renderer, body: Body) -> dict[str, object]:
    """The text of `tokens`, special tokens included. Raises ApiError."""
    tokens = body.get("tokens")
    if "tokens" not in body:
        raise not_valid("missing", "body.tokens", "Field required", body)
    if not isinstance(tokens, list):
        text = "Input should be a valid list"
        raise not_valid("list_type", "body.tokens", text, tokens)
    for number, token in enumerate(tokens):
        if type(token) is not int or not 0 <= token < 1 << 32:
            text = "Input should be greater than or equal to 0"
            where = f"body.tokens.{number}"
            raise not_valid("greater_than_equal", where, text, token)
    return {"prompt": renderer.detokenize(tokens, skip_special_tokens=False)}
