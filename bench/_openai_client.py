"""The `openai` client as users write it: what it makes of answers and refusals.

`URL MODEL` are the arguments.
"""

import sys

import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionUserMessageParam

ASKED: ChatCompletionUserMessageParam = {"role": "user", "content": "What is a block?"}


def main(url: str, model: str) -> None:
    """Ask in each way; print what came, a line each."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    print("openai", openai.__version__)
    print("models:", *(one.id for one in client.models.list()))
    chats = client.chat.completions
    raw = chats.with_raw_response.create(model=model, messages=[ASKED], max_tokens=8)
    answer = raw.parse()
    print("chat:", answer.choices[0].finish_reason, _tokens(answer.usage))
    print("retries:", raw.retries_taken)
    events = list(
        chats.create(
            model=model, messages=[ASKED], max_tokens=8, stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    print("stream:", len(events), "events,", _tokens(events[-1].usage))
    done = client.completions.create(model=model, prompt="A block is", max_tokens=8)
    print("completion:", done.choices[0].finish_reason, _tokens(done.usage))
    for name, messages in (("nobody", [ASKED]), (model, [])):
        try:
            chats.create(model=name, messages=messages)
        except openai.APIStatusError as error:
            kind, about = type(error).__name__, f"{name}, {len(messages)} messages"
            print(f"{about}: {kind} {error.status_code}, id {bool(error.request_id)}")


def _tokens(usage: CompletionUsage | None) -> str:
    if usage is None:
        return "no usage"
    return f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"


if __name__ == "__main__":
    main(*sys.argv[1:])
