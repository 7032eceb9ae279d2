"""The fields that TensorRT-LLM's request models take; its render routes refuse others.

Told from `tensorrt_llm/serve/openai_protocol.py`.
"""

_BOTH = """
    add_special_tokens best_of conversation_params disaggregated_params
    early_stopping echo frequency_penalty ignore_eos
    include_stop_str_in_output length_penalty logit_bias logprobs lora_request
    max_tokens min_p min_tokens model n presence_penalty priority
    prompt_ignore_length repetition_penalty response_format seed
    skip_special_tokens spaces_between_special_tokens stop stop_token_ids
    stream stream_options temperature thinking_token_budget top_k top_p
    top_p_min truncate_prompt_tokens use_beam_search user
"""
_CHAT = """
    add_generation_prompt agent_hierarchy cache_salt chat_template
    chat_template_kwargs documents injected_chat_template_kwargs
    max_completion_tokens media_io_kwargs messages mm_processor_kwargs
    parallel_tool_calls prompt_token_ids prompt_token_ids_b64 reasoning_effort
    thinking tool_choice tools top_logprobs
"""
_COMPLETION = """
    detokenize prompt return_context_logits suffix
"""

CHAT_FIELDS = frozenset((_BOTH + _CHAT).split())
COMPLETION_FIELDS = frozenset((_BOTH + _COMPLETION).split())
