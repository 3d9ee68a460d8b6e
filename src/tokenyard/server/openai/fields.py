"""The fields of requests, as OpenAI's and vLLM's clients send them. What none of these classes names is refused."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = [
    "IGNORED",
    "WITHOUT_EFFECT",
    "ChatCompletionRequest",
    "CompletionRequest",
    "DetokenizeRequest",
    "EmbeddingRequest",
    "GenerationRequest",
    "JsonSchema",
    "ResponseFormat",
    "StreamOptions",
    "StructuredOutputs",
    "TokenizeRequest",
]

IGNORED = frozenset(("user", "metadata", "safety_identifier", "prompt_cache_key", "service_tier", "name"))
"""Fields that say something about the client: accepted, and named in the header ``Tokenyard-Ignored``."""

WITHOUT_EFFECT: dict[str, tuple[object, ...]] = {
    "best_of": (None, 1),
    "suffix": (None, ""),
    "store": (None, False),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "functions": (None, []),
    "function_call": (None, "none"),
    "parallel_tool_calls": (None, True, False),
    "prediction": (None,),
    "reasoning_effort": (None,),
    "verbosity": (None,),
    "web_search_options": (None,),
    "use_beam_search": (None, False),
    "length_penalty": (None, 1, 1.0),
    "spaces_between_special_tokens": (None, True),
    "truncate_prompt_tokens": (None,),
    "dimensions": (None,),
    "allowed_token_ids": (None, []),
    "bad_words": (None, []),
    "kv_transfer_params": (None,),
    "chat_template": (None,),
    "documents": (None, []),
    "mm_processor_kwargs": (None,),
    "return_tokens_as_token_ids": (None, False),
    "return_token_ids": (None, False),
    "continue_final_message": (None, False),
    "logits_processors": (None, []),
}
"""Fields of theirs that this server does not know how to heed, and the values with which nothing is asked."""


class _Fields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Unknown fields are refused."""


class StreamOptions(_Fields, kw_only=True):
    """How a stream ends."""

    include_usage: bool = False
    """Tell the usage in a last chunk without choices."""


class JsonSchema(_Fields, kw_only=True):
    """What an answer's JSON must look like."""

    schema: dict[str, Any]
    name: str = ""
    description: str | None = None
    strict: bool | None = None
    """Answers keep to the schema either way."""


class ResponseFormat(_Fields, kw_only=True):
    """What an answer must look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(_Fields, kw_only=True):
    """The same, as vLLM's clients say it: one of these."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class GenerationRequest(_Fields, kw_only=True):
    """What completions and chats have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    response_format: ResponseFormat | None = None
    # vLLM's
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    structured_outputs: StructuredOutputs | None = None
    prompt_logprobs: int | None = None
    """Likeliest tokens told with each token of the prompt."""
    priority: int | None = None
    cache_salt: str | None = None
    request_id: str | None = None
    vllm_xargs: dict[str, Any] | None = None
    """``job_id``, ``is_last_step``, ``this_func_call``: as clients of vLLM with a Continuum scheduler send them."""
    # ours: the same without a wrapping
    job_id: str | None = None
    is_last_step: bool | None = None
    this_func_call: str | None = None


class CompletionRequest(GenerationRequest, kw_only=True):
    """``POST /v1/completions``."""

    prompt: str | list[Any]
    """A text, token ids, or a list of either."""
    echo: bool | None = None
    """Put the prompt in front of every answer."""
    logprobs: int | None = None
    """Likeliest tokens told with each token."""


class ChatCompletionRequest(GenerationRequest, kw_only=True):
    """``POST /v1/chat/completions``."""

    messages: list[dict[str, Any]]
    """Passed to the model's chat template, whatever fields they have."""
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    """Passed to the model's chat template."""
    tool_choice: Literal["none", "auto"] | None = None
    """``none`` keeps the tools from the template."""
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    """Further variables of the template."""


class EmbeddingRequest(_Fields, kw_only=True):
    """``POST /v1/embeddings``."""

    input: str | list[Any]
    """A text, token ids, or a list of either."""
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    # vLLM's
    add_special_tokens: bool | None = None
    normalize: bool | None = None
    """Vectors of length 1, unless false."""
    priority: int | None = None
    cache_salt: str | None = None
    request_id: str | None = None
    # ours
    pooling_type: Literal["LAST", "CLS", "MEAN"] = "LAST"
    """Of which tokens' states a vector is made."""


class TokenizeRequest(_Fields, kw_only=True):
    """``POST /tokenize``: of a prompt, or of messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(_Fields, kw_only=True):
    """``POST /detokenize``."""

    model: str | None = None
    tokens: list[int]
