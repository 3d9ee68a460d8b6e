"""Calls to an emulated server and to vLLM's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["LENGTH", "SERVERS", "Call", "Server"]

LENGTH = 512
"""Longest request of the model that is asked."""
_USER = [{"role": "user", "content": "hello there"}]
_FUNCTION = {
    "name": "f",
    "parameters": {"type": "object", "properties": {"x": {"type": "string", "enum": ["a"]}}, "required": ["x"]},
}
_TOOLS = [{"type": "function", "function": _FUNCTION}]
_SHORT = {"max_tokens": 4, "ignore_eos": True}
_KEY = {"Authorization": "Bearer any"}


class Call(NamedTuple):
    """One request to both."""

    name: str
    method: str
    path: str
    body: dict[str, Any] | bytes | None = None
    heads: Mapping[str, str] = {}


_GENERATING = [
    Call("models", "GET", "/v1/models"),
    Call("health", "GET", "/health"),
    Call("ping", "GET", "/ping"),
    Call("version", "GET", "/version"),
    Call("load", "GET", "/load"),
    Call("completion", "POST", "/v1/completions", {"prompt": "hi", **_SHORT}),
    Call("completion n=2", "POST", "/v1/completions", {"prompt": "hi", "n": 2, "temperature": 1, **_SHORT}),
    Call("completion logprobs", "POST", "/v1/completions", {"prompt": "hi", "logprobs": 1, **_SHORT}),
    Call("completion ids", "POST", "/v1/completions", {"prompt": [5, 6, 7], "return_token_ids": True, **_SHORT}),
    Call("completion stream", "POST", "/v1/completions", {"prompt": "hi", "stream": True, **_SHORT}),
    Call(
        "completion stream usage",
        "POST",
        "/v1/completions",
        {"prompt": "hi", "stream": True, "stream_options": {"include_usage": True}, **_SHORT},
    ),
    Call(
        "completion usage throughout",
        "POST",
        "/v1/completions",
        {
            "prompt": "hi",
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            **_SHORT,
        },
    ),
    Call("completion n=2 stream", "POST", "/v1/completions", {"prompt": "hi", "n": 2, "stream": True, **_SHORT}),
    Call("completion echo", "POST", "/v1/completions", {"prompt": "hi", "echo": True, **_SHORT}),
    Call(
        "completion prompt logprobs",
        "POST",
        "/v1/completions",
        {"prompt": "hi there, you", "prompt_logprobs": 1, **_SHORT},
    ),
    Call("completion two prompts", "POST", "/v1/completions", {"prompt": ["hi", "ho"], **_SHORT}),
    Call(
        "completion logprobs stream",
        "POST",
        "/v1/completions",
        {"prompt": "hi", "logprobs": 1, "stream": True, **_SHORT},
    ),
    Call(
        "completion ids stream",
        "POST",
        "/v1/completions",
        {"prompt": "hi", "return_token_ids": True, "stream": True, **_SHORT},
    ),
    Call("chat", "POST", "/v1/chat/completions", {"messages": _USER, **_SHORT}),
    Call("chat n=2", "POST", "/v1/chat/completions", {"messages": _USER, "n": 2, "temperature": 1, **_SHORT}),
    Call("chat n=2 stream", "POST", "/v1/chat/completions", {"messages": _USER, "n": 2, "stream": True, **_SHORT}),
    Call("chat ids", "POST", "/v1/chat/completions", {"messages": _USER, "return_token_ids": True, **_SHORT}),
    Call(
        "chat ids stream",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "return_token_ids": True, "stream": True, **_SHORT},
    ),
    Call(
        "chat logprobs stream",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "logprobs": True, "top_logprobs": 1, "stream": True, **_SHORT},
    ),
    Call("chat tools, no parser", "POST", "/v1/chat/completions", {"messages": _USER, "tools": _TOOLS, **_SHORT}),
    Call(
        "chat tool_choice auto",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "tools": _TOOLS, "tool_choice": "auto", **_SHORT},
    ),
    Call(
        "chat tools required, no parser",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "tools": _TOOLS, "tool_choice": "required", **_SHORT},
    ),
    Call("responses", "POST", "/v1/responses", {"input": "hello", "max_output_tokens": 4}),
    Call("responses stream", "POST", "/v1/responses", {"input": "hello", "max_output_tokens": 4, "stream": True}),
    Call(
        "chat logprobs",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "logprobs": True, "top_logprobs": 1, **_SHORT},
    ),
    Call("chat stream", "POST", "/v1/chat/completions", {"messages": _USER, "stream": True, **_SHORT}),
    Call(
        "chat stream usage",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "stream": True, "stream_options": {"include_usage": True}, **_SHORT},
    ),
    Call(
        "chat schema",
        "POST",
        "/v1/chat/completions",
        {"messages": _USER, "structured_outputs": {"choice": ["yes", "no"]}, "max_tokens": 8},
    ),
    Call("tokenize", "POST", "/tokenize", {"prompt": "hi"}),
    Call("tokenize chat", "POST", "/tokenize", {"messages": _USER}),
    Call("detokenize", "POST", "/detokenize", {"tokens": [300, 301]}),
    Call("embeddings of a chat model", "POST", "/v1/embeddings", {"input": "hi"}),
    Call("unknown model", "POST", "/v1/completions", {"model": "nope", "prompt": "hi"}),
    Call("max_tokens -1", "POST", "/v1/completions", {"prompt": "hi", "max_tokens": -1}),
    Call("max_tokens too large", "POST", "/v1/completions", {"prompt": "hi", "max_tokens": 99999}),
    Call("no JSON", "POST", "/v1/completions", b"{bad"),
    Call("no prompt", "POST", "/v1/completions", {}),
    Call("temperature -1", "POST", "/v1/chat/completions", {"messages": _USER, "temperature": -1}),
    Call("unknown field", "POST", "/v1/completions", {"prompt": "hi", "frobnicate": 1, **_SHORT}),
    Call("no messages", "POST", "/v1/chat/completions", {"messages": []}),
    Call("messages missing", "POST", "/v1/chat/completions", {}),
    Call("prompt too long", "POST", "/v1/completions", {"prompt": [7] * (LENGTH + 1), "max_tokens": 4}),
    Call("token beyond the vocabulary", "POST", "/v1/completions", {"prompt": [10**9], "max_tokens": 4}),
    Call("n=0", "POST", "/v1/completions", {"prompt": "hi", "n": 0}),
    Call("top_p 2", "POST", "/v1/completions", {"prompt": "hi", "top_p": 2}),
    Call("logprobs 1000", "POST", "/v1/completions", {"prompt": "hi", "logprobs": 1000, **_SHORT}),
    Call("top_logprobs alone", "POST", "/v1/chat/completions", {"messages": _USER, "top_logprobs": 1, **_SHORT}),
    Call("stream options, no stream", "POST", "/v1/completions", {"prompt": "hi", "stream_options": {}, **_SHORT}),
    Call("min_tokens too large", "POST", "/v1/completions", {"prompt": "hi", "min_tokens": 9, "max_tokens": 4}),
    Call("unknown path", "GET", "/nope"),
    Call("wrong method", "GET", "/v1/completions"),
    Call("adapter without a name", "POST", "/v1/load_lora_adapter", {}),
    Call("adapter without --enable-lora", "POST", "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/a"}),
    Call("unknown adapter", "POST", "/v1/unload_lora_adapter", {"lora_name": "nope"}),
    Call("reset_prefix_cache", "POST", "/reset_prefix_cache"),
    Call("is_sleeping", "GET", "/is_sleeping"),
]


def _chat(name: str, **fields: Any) -> Call:
    return Call(name, "POST", "/v1/chat/completions", {"messages": _USER, **fields})


def _completion(name: str, **fields: Any) -> Call:
    return Call(name, "POST", "/v1/completions", {"prompt": "hi", **fields})


_USAGE = {"stream": True, "stream_options": {"include_usage": True}}
_NAMED = {"type": "function", "function": {"name": "f"}}
_SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": _FUNCTION["parameters"]}}
_GENERATING += [
    _chat("chat stream options, no stream", stream_options={"include_usage": True}),
    _chat(
        "chat usage throughout",
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        **_SHORT,
    ),
    _chat("chat json_schema", response_format=_SCHEMA, max_tokens=40),
    _chat("chat unknown model", model="nope"),
    _chat("chat prompt too long", max_tokens=LENGTH + 1),
    _chat("chat content parts", messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}], **_SHORT),
    _chat("chat unknown role", messages=[{"role": "wizard", "content": "hi"}], **_SHORT),
    _chat("chat prompt logprobs", prompt_logprobs=1, **_SHORT),
    _completion("completion empty prompt", prompt="", **_SHORT),
    _completion("completion prompts of ids", prompt=[[5, 6], [7, 8]], **_SHORT),
    _completion("completion two prompts stream", prompt=["hi", "ho"], stream=True, **_SHORT),
    _completion("completion echo logprobs", prompt="hi there, you", echo=True, logprobs=1, **_SHORT),
    _completion("max_tokens 0", max_tokens=0),
    _completion("priority without its policy", priority=5, **_SHORT),
    _completion("seed beyond 64 bits", seed=2**70, **_SHORT),
    _completion("temperature a text", temperature="hot", **_SHORT),
    _completion("stop strings", stop=["zzz", "yyy"], **_SHORT),
    _completion("token of the bias unknown", logit_bias={"999999": 1}, **_SHORT),
    _completion("choice and regex", structured_outputs={"choice": ["a"], "regex": "b"}, **_SHORT),
    Call("body a list", "POST", "/v1/completions", b"[]"),
    Call("body empty", "POST", "/v1/completions", b""),
    Call("no content type", "POST", "/v1/completions", b'{"prompt": "hi"}', {"Content-Type": "text/plain"}),
    Call("request id of the client", "POST", "/v1/completions", {"prompt": "hi", **_SHORT}, {"X-Request-Id": "mine"}),
    Call("responses unknown model", "POST", "/v1/responses", {"input": "hi", "model": "nope"}),
    Call(
        "responses instructions", "POST", "/v1/responses", {"input": "hi", "instructions": "be", "max_output_tokens": 4}
    ),
    Call("responses of messages", "POST", "/v1/responses", {"input": _USER, "max_output_tokens": 4}),
    Call("responses without input", "POST", "/v1/responses", {}),
    Call("unknown response", "GET", "/v1/responses/resp_0"),
    Call("tokenize strings", "POST", "/tokenize", {"prompt": "hi", "return_token_strs": True}),
    Call("tokenize nothing", "POST", "/tokenize", {}),
    Call("embeddings by GET", "GET", "/v1/embeddings"),
    Call("options", "OPTIONS", "/v1/models", None, {"Origin": "http://a", "Access-Control-Request-Method": "GET"}),
    Call("models by POST", "POST", "/v1/models", {}),
    Call("one model", "GET", "/v1/models/tiny"),
    Call("pause", "POST", "/pause"),
    Call("is_paused", "GET", "/is_paused"),
    Call("resume", "POST", "/resume"),
]


def _message(name: str, *, path: str = "/v1/messages", **fields: Any) -> Call:
    return Call(name, "POST", path, {"messages": _USER, "max_tokens": 4, **fields})


def _counted(name: str, **fields: Any) -> Call:
    return Call(name, "POST", "/v1/messages/count_tokens", {"messages": _USER, **fields})


_TEXT = {"type": "text", "text": "hi"}
_ITS_TOOLS = [{"name": "f", "description": "what it does", "input_schema": _FUNCTION["parameters"]}]
_TURNS = [
    *_USER,
    {"role": "assistant", "content": [_TEXT, {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": "a"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}, _TEXT]},
]
_SEEN = {"type": "object", "properties": {"seen": {"type": "boolean"}}, "required": ["seen"]}
_CHANGED = [{"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "g"}}]}]
_MESSAGES = [
    _message("messages"),
    _message("messages stream", stream=True),
    _message("messages of blocks", messages=[{"role": "user", "content": [_TEXT, _TEXT]}]),
    _message("messages of turns", messages=_TURNS),
    _message("messages system", system="be brief"),
    _message("messages system blocks", system=[_TEXT]),
    _message("messages sampling", temperature=0.5, top_k=5, top_p=0.9),
    _message("messages stop sequences", stop_sequences=["zzz", "yyy"]),
    _message("messages metadata", metadata={"user_id": "me"}, service_tier="auto"),
    _message("messages thinking off", thinking={"type": "disabled"}),
    _message("messages schema", output_config={"format": {"type": "json_schema", "schema": _SEEN}}, max_tokens=1),
    _message("messages tools, no parser", tools=_ITS_TOOLS),
    _message("messages tools empty", tools=[]),
    _message("messages tool_choice alone", tool_choice={"type": "any"}),
    _message("messages named tool without tools", tool_choice={"type": "tool", "name": "f"}),
    _message("messages tool_choice none", tools=_ITS_TOOLS, tool_choice={"type": "none"}),
    _message("messages tool without a name", tools=_ITS_TOOLS, tool_choice={"type": "tool"}),
    _message("messages unknown tool removed", messages=[*_CHANGED, *_USER], tools=_ITS_TOOLS),
    _message("messages unknown model", model="nope"),
    _message("messages empty model", model=""),
    _message("messages none", messages=[]),
    _message("messages unknown role", messages=[{"role": "wizard", "content": "hi"}]),
    _message("messages unknown block", messages=[{"role": "user", "content": [{"type": "video"}]}]),
    _message("messages of an image", messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}]),
    _message("messages max_tokens 0", max_tokens=0),
    _message("messages max_tokens a text", max_tokens="many"),
    _message("messages max_tokens too large", max_tokens=99999),
    _message("messages too long", messages=[{"role": "user", "content": "word " * (LENGTH + 1)}]),
    _message("messages temperature -1", temperature=-1),
    _message("messages temperature -1, stream", temperature=-1, stream=True),
    _message("messages top_p 2", top_p=2),
    _message("messages top_k -5", top_k=-5),
    _message("messages thinking without room", thinking={"type": "enabled", "budget_tokens": 2000}),
    _message("messages thinking too small", thinking={"type": "enabled", "budget_tokens": 1}),
    Call("messages without max_tokens", "POST", "/v1/messages", {"messages": _USER}),
    Call("messages without messages", "POST", "/v1/messages", {"max_tokens": 4}),
    Call("messages no JSON", "POST", "/v1/messages", b"{bad"),
    Call("messages of a list", "POST", "/v1/messages", b"[]"),
    Call("messages, no content type", "POST", "/v1/messages", b"{}", {"Content-Type": "text/plain"}),
    Call("messages by GET", "GET", "/v1/messages"),
    _counted("count_tokens"),
    _counted("count_tokens system and tools", system="be brief", tools=_ITS_TOOLS),
    _counted("count_tokens of turns", messages=_TURNS),
    _counted("count_tokens unknown model", model="nope"),
    _counted("count_tokens none", messages=[]),
    Call("count_tokens without messages", "POST", "/v1/messages/count_tokens", {}),
]
_OPERATORS = [
    Call("get_world_size", "GET", "/get_world_size"),
    Call("weight_info", "GET", "/weight_info"),
    Call("is_scaling_elastic_ep", "POST", "/is_scaling_elastic_ep"),
    Call("reset_mm_cache", "POST", "/reset_mm_cache"),
    Call("reset_encoder_cache", "POST", "/reset_encoder_cache"),
    Call("unknown response cancelled", "POST", "/v1/responses/resp_0/cancel"),
    Call("an invoked completion", "POST", "/invocations", {"prompt": "hi", **_SHORT}),
    Call("an invoked chat", "POST", "/invocations", {"messages": _USER, **_SHORT}),
    Call("an invoked nothing", "POST", "/invocations", {}),
    Call("an adapter registered", "POST", "/adapters", {"name": "a", "src": "/a"}),
    Call("an adapter unregistered", "DELETE", "/adapters/a"),
    Call("an unknown adapter unregistered", "DELETE", "/adapters/b"),
    Call("an adapter of nothing", "POST", "/adapters", {}),
]


def _batch(name: str, **fields: Any) -> Call:
    return Call(name, "POST", "/v1/chat/completions/batch", {"messages": [_USER, _USER], **_SHORT, **fields})


_BATCHES = [
    _batch("batch"),
    _batch("batch of one", messages=[_USER]),
    _batch("batch logprobs", logprobs=True, top_logprobs=1),
    _batch("batch ids", return_token_ids=True),
    _batch("batch n=2", n=2),
    _batch("batch stream", stream=True),
    _batch("batch with tools", tools=_TOOLS),
    _batch("batch unknown model", model="nope"),
    _batch("batch of none", messages=[]),
    _batch("batch with a talk of none", messages=[_USER, []]),
    _batch("batch of messages", messages=_USER),
    _batch("batch temperature -1", temperature=-1),
    _batch("batch too long", max_tokens=LENGTH + 1),
    Call("batch without messages", "POST", "/v1/chat/completions/batch", {}),
    Call("batch by GET", "GET", "/v1/chat/completions/batch"),
]
_FLEETS = [
    Call("kv_event_sources", "GET", "/kv_event_sources"),
    Call("kv_event_sources by POST", "POST", "/kv_event_sources"),
    Call("server_info", "GET", "/server_info"),
    Call("server_info json", "GET", "/server_info?config_format=json"),
    Call("server_info, unknown form", "GET", "/server_info?config_format=xml"),
    Call("abort_requests, all", "POST", "/abort_requests", {}),
    Call("abort_requests, unknown", "POST", "/abort_requests", {"request_ids": ["nope"]}),
    Call("abort_requests of a list", "POST", "/abort_requests", b"[]"),
    Call("abort_requests no JSON", "POST", "/abort_requests", b"{bad"),
    Call("scale_elastic_ep as it is", "POST", "/scale_elastic_ep", {"new_data_parallel_size": 1}),
    Call("scale_elastic_ep to nothing", "POST", "/scale_elastic_ep", {"new_data_parallel_size": 0}),
    Call("scale_elastic_ep, no time", "POST", "/scale_elastic_ep", {"new_data_parallel_size": 1, "drain_timeout": 0}),
    Call("scale_elastic_ep without a number", "POST", "/scale_elastic_ep", {}),
    Call("scale_elastic_ep no JSON", "POST", "/scale_elastic_ep", b"{bad"),
    Call("scale_elastic_ep to two", "POST", "/scale_elastic_ep", {"new_data_parallel_size": 2}),
    *(
        Call(f"{path} of a chat model", "POST", path, {"input": "hi"})
        for path in ("/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank")
    ),
]
_GENERATING += [*_MESSAGES, *_OPERATORS, *_BATCHES, *_FLEETS]
_AFTER = [Call("metrics", "GET", "/metrics")]
_TOOLED = [
    Call("no key", "GET", "/v1/models"),
    Call("no key, chat", "POST", "/v1/chat/completions", {"messages": _USER}),
    Call("no key, health", "GET", "/health"),
    Call("no key, metrics", "GET", "/metrics"),
    Call("no key, tokenize", "POST", "/tokenize", {"prompt": "hi"}),
    Call("another scheme", "GET", "/v1/models", None, {"Authorization": "Basic any"}),
    Call("messages, key in x-api-key", "POST", "/v1/messages", {"messages": _USER}, {"x-api-key": "any"}),
    *(
        call._replace(heads=_KEY)
        for call in (
            Call("models with the key", "GET", "/v1/models"),
            _chat("tools required", tools=_TOOLS, tool_choice="required", max_tokens=80),
            _chat("tools required, stream", tools=_TOOLS, tool_choice="required", max_tokens=80, stream=True),
            _chat("tools named", tools=_TOOLS, tool_choice=_NAMED, max_tokens=80),
            _chat("tools named, stream", tools=_TOOLS, tool_choice=_NAMED, max_tokens=80, **_USAGE),
            _chat("tools none", tools=_TOOLS, tool_choice="none", **_SHORT),
            _chat("tool_choice without tools", tool_choice="auto", **_SHORT),
            _chat("tools empty", tools=[], **_SHORT),
            _message("messages named tool", tools=_ITS_TOOLS, tool_choice={"type": "tool", "name": "f"}, max_tokens=80),
            _message(
                "messages named tool, stream",
                tools=_ITS_TOOLS,
                tool_choice={"type": "tool", "name": "f"},
                max_tokens=80,
                stream=True,
            ),
            _message("messages with tools", tools=_ITS_TOOLS, tool_choice={"type": "none"}, max_tokens=4),
            _counted("count_tokens with tools", tools=_ITS_TOOLS),
            _chat("tool not among them", tools=_TOOLS, tool_choice={**_NAMED, "function": {"name": "g"}}),
        )
    ),
]


def _embedding(name: str, **fields: Any) -> Call:
    return Call(name, "POST", "/v1/embeddings", {"input": "hi", **fields})


def _pooled(name: str, **fields: Any) -> Call:
    return Call(name, "POST", "/pooling", {"input": "hi", **fields})


def _scored(name: str, path: str = "/score", **fields: Any) -> Call:
    return Call(name, "POST", path, fields)


_POOLING = [
    Call("models of a pooler", "GET", "/v1/models"),
    _embedding("embedding"),
    _embedding("embeddings of two", input=["hi", "ho"]),
    _embedding("embedding of ids", input=[5, 6, 7]),
    _embedding("embedding in base64", encoding_format="base64"),
    _embedding("embedding, unknown form", encoding_format="hex"),
    _embedding("embedding of nothing", input=[]),
    _embedding("embedding too long", input=[7] * (LENGTH + 1)),
    _embedding("embedding, unknown model", model="nope"),
    Call("embedding without input", "POST", "/v1/embeddings", {}),
    Call("a chat to a pooler", "POST", "/v1/chat/completions", {"messages": _USER}),
    _message("messages to a pooler"),
    Call("a completion of a pooler", "POST", "/v1/completions", {"prompt": "hi"}),
    _pooled("pooling"),
    _pooled("pooling of two", input=["hi", "ho"]),
    _pooled("pooling of ids", input=[5, 6, 7]),
    _pooled("pooling of a chat", input=None, messages=_USER),
    _pooled("pooling in base64", encoding_format="base64"),
    _pooled("pooling to embed", task="embed"),
    _pooled("pooling to classify", task="classify"),
    _pooled("pooling to nothing known", task="nope"),
    _pooled("pooling normalize", normalize=True),
    _pooled("pooling unknown model", model="nope"),
    _pooled("pooling too long", input=[7] * (LENGTH + 1)),
    Call("pooling without input", "POST", "/pooling", {}),
    *(_scored(f"{path} of texts", path, text_1="hi", text_2="ho") for path in ("/score", "/v1/score")),
    _scored("score of queries", queries="hi", documents=["ho", "hu"]),
    _scored("score of pairs", queries=["hi", "he"], documents=["ho", "hu"]),
    _scored("score of items", queries="hi", items=["ho"]),
    _scored("score of data", data_1="hi", data_2=["ho"]),
    _scored("score, not paired", queries=["hi", "he"], documents=["ho", "hu", "ha"]),
    _scored("score of nothing"),
    _scored("score of no documents", queries="hi", documents=[]),
    _scored("score unknown model", model="nope", queries="hi", documents="ho"),
    _scored("score too long", queries="hi", documents="a " * 900),
    *(
        _scored(f"{path} of texts", path, query="hi", documents=["ho", "hu", "ha"])
        for path in ("/rerank", "/v1/rerank", "/v2/rerank")
    ),
    _scored("rerank, two of three", "/rerank", query="hi", documents=["ho", "hu", "ha"], top_n=2),
    _scored("rerank of one", "/rerank", query="hi", documents="ho"),
    _scored("rerank, top -1", "/rerank", query="hi", documents=["ho"], top_n=-1),
    _scored("rerank without documents", "/rerank", query="hi"),
    _scored("rerank unknown model", "/rerank", query="hi", documents=["ho"], model="nope"),
    Call("rerank by GET", "GET", "/rerank"),
    Call("score no JSON", "POST", "/score", b"{bad"),
    Call("classify by a pooler", "POST", "/classify", {"input": "hi"}),
    Call("a batch to a pooler", "POST", "/v1/chat/completions/batch", {"messages": [_USER]}),
    Call("scale_elastic_ep of a pooler", "POST", "/scale_elastic_ep", {"new_data_parallel_size": 1}),
    Call("kv_event_sources of a pooler", "GET", "/kv_event_sources"),
    Call("an invoked rerank", "POST", "/invocations", {"query": "hi", "documents": ["ho"]}),
    Call("an invoked score", "POST", "/invocations", {"text_1": "hi", "text_2": "ho"}),
    Call("an invoked embedding", "POST", "/invocations", {"input": "hi"}),
    Call("metrics of a pooler", "GET", "/metrics"),
]


class Server(NamedTuple):
    """A command line of vLLM's, and what is asked of it."""

    name: str
    flags: str
    calls: Sequence[Call]


SERVERS = (
    Server("generates", "", [*_GENERATING, *_AFTER]),
    Server("tools, a key", "--enable-auto-tool-choice --tool-call-parser hermes --api-key any", _TOOLED),
    Server("pools", "--runner pooling", _POOLING),
)
