"""The fields of SGLang's request models that a simulated worker reads.

Told from `srt/entrypoints/openai/protocol.py`; all others are ignored, as there.
"""

from render.fields import Field, Table

_OFF = Field("flag", False, nullable=False)
_ON = Field("flag", True, nullable=False)
_INTEGER = Field("integer")

DETAILS: Table = {"return_cached_tokens_details": _OFF}
_SAMPLING: Table = {
    **DETAILS,
    "model": Field("text", "default", nullable=False),
    "frequency_penalty": Field("number"),
    "presence_penalty": Field("number"),
    "logit_bias": Field("object"),
    "n": Field("integer", 1, nullable=False),
    "seed": _INTEGER,
    "stop": Field("texts"),
    "stream": _OFF,
    "stream_options": Field("object"),
    "temperature": Field("number"),
    "top_p": Field("number"),
    "top_k": _INTEGER,
    "min_p": Field("number"),
    "stop_token_ids": Field("list", items="integer"),
    "no_stop_trim": _OFF,
    "ignore_eos": _OFF,
    "return_token_ids": _OFF,
    "routed_dp_rank": _INTEGER,
    "data_parallel_rank": _INTEGER,
    "rid": Field("any"),
    "extra_key": Field("any"),
    "cache_salt": Field("any"),
    "lora_path": Field("any"),
}
CHAT: Table = {
    **_SAMPLING,
    "messages": Field("list", items="object", nullable=False),
    "logprobs": _OFF,
    "top_logprobs": _INTEGER,
    "max_tokens": _INTEGER,
    "max_completion_tokens": _INTEGER,
    "tools": Field("list", items="object"),
    "tool_choice": Field("any"),
    "return_prompt_token_ids": _OFF,
    "return_meta_info": _OFF,
    "continue_final_message": _OFF,
    "chat_template_kwargs": Field("object"),
    "input_ids": Field("list", items="integer"),
}
COMPLETION: Table = {
    **_SAMPLING,
    "prompt": Field("any"),
    "logprobs": _INTEGER,
    "max_tokens": Field("integer", 16, nullable=False),
}
STREAM_OPTIONS: Table = {
    "include_usage": Field("flag", False),
    "continuous_usage_stats": Field("flag", False),
}
TOKENIZE: Table = {
    "prompt": Field("any"),
    "messages": Field("list", items="object"),
    "add_special_tokens": _ON,
    "add_generation_prompt": Field("flag"),
}
DETOKENIZE: Table = {"tokens": Field("any"), "skip_special_tokens": _ON}
