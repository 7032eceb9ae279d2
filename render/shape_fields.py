"""What is known of the fields of a chat body: which of them reach the prompt, and how.

Told from the request models of vLLM 0.33, SGLang 0.5.23 and TensorRT-LLM 1.4. What no
list here names may reach a template in a way that is not known here.
"""

OPENAI = frozenset(
    {
        "model", "frequency_penalty", "logit_bias", "logprobs", "max_completion_tokens",
        "max_tokens", "metadata", "n", "parallel_tool_calls", "prediction",
        "presence_penalty", "prompt_cache_key", "prompt_cache_retention",
        "response_format", "safety_identifier", "seed", "service_tier", "stop", "store",
        "stream", "stream_options", "temperature", "top_logprobs", "top_p", "user",
    }
)  # fmt: skip
SAMPLING = frozenset(
    {
        "allowed_token_ids", "bad_words", "best_of", "early_stopping", "ignore_eos",
        "include_reasoning", "include_stop_str_in_output", "length_penalty",
        "logprob_token_ids", "min_p", "min_tokens", "prompt_logprobs",
        "repetition_penalty", "skip_special_tokens", "spaces_between_special_tokens",
        "stop_token_ids", "structured_outputs", "thinking_token_budget", "top_k",
        "top_p_min", "use_beam_search",
    }
)  # fmt: skip
VLLM = frozenset(
    {
        "guided_choice", "guided_decoding_backend", "guided_grammar", "guided_json",
        "guided_regex", "guided_whitespace_pattern", "mm_payload",
        "repetition_detection", "return_token_ids", "return_tokens_as_token_ids",
        "stream_interval", "structural_tag", "vllm_xargs",
    }
)  # fmt: skip
SGLANG = frozenset(
    {
        "bootstrap_host", "bootstrap_port", "bootstrap_room", "custom_logit_processor",
        "custom_params", "data_parallel_rank", "disagg_prefill_dp_rank", "ebnf",
        "extra_key", "lora_path", "no_stop_trim", "regex",
        "return_cached_tokens_details", "return_hidden_states",
        "return_input_ids_in_sglext", "return_meta_info",
        "return_output_ids_in_sglext", "return_prompt_token_ids",
        "return_routed_experts", "rid", "routed_dp_rank", "separate_reasoning",
        "stop_regex", "stream_reasoning", "watermark",
    }
)  # fmt: skip
TRTLLM = frozenset({"agent_hierarchy", "conversation_params", "lora_request"})
IDENTITY = frozenset({"cache_salt", "priority", "request_id", "session_id"})
UNSEEN = OPENAI | SAMPLING | VLLM | SGLANG | TRTLLM | IDENTITY
"""Fields that no engine hands its template."""

READ = frozenset(
    {
        "messages", "tools", "tool_choice", "documents", "chat_template",
        "chat_template_kwargs", "reasoning_effort", "reasoning",
        "add_generation_prompt", "continue_final_message", "add_special_tokens",
        "truncate_prompt_tokens", "truncation_side", "echo", "kv_transfer_params",
        "media_io_kwargs", "mm_processor_kwargs",
    }
)  # fmt: skip
"""Fields that reach the prompt, or decide whether ids are read: each has its rule."""

OWN_IDS = frozenset(
    {"prompt_token_ids", "prompt_token_ids_b64", "input_ids", "prompt_embeds"}
)
"""Fields by which a client gives its prompt itself."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
MESSAGE = frozenset({"role", "content", "name"})
"""The fields of every message."""
ASSISTANT = frozenset(
    {"tool_calls", "reasoning", "reasoning_content", "refusal", "annotations"}
)
"""The last two are fields of answers that clients send back; no template sees them."""
TOOL = frozenset({"tool_call_id"})

TEXT_PART = frozenset({"type", "text"})
CALL = frozenset({"id", "type", "function", "index"})
CALLED = frozenset({"name", "arguments"})
FUNCTION = frozenset({"name", "description", "parameters", "strict"})

ARGUMENTS = frozenset(
    {
        "add_generation_prompt", "add_special_tokens", "chat_template",
        "continue_final_message", "conversation", "documents", "max_length", "messages",
        "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors",
        "sanitize_control_tokens", "tokenize", "tokenizer_kwargs", "tools",
        "truncation", "raise_exception", "strftime_now",
    }
)  # fmt: skip
"""Template variables that are arguments of an engine, or of transformers, as well."""

USAGE_LEAVES_OUT = frozenset({"kimi_k3"})
"""Model types whose usage counts given ids otherwise than rendered ones."""
