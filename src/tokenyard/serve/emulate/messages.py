"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: what Anthropic's clients ask for, as a chat."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.errors import shown
from tokenyard.serve.emulate.forms import Forms
from tokenyard.serve.emulate.message_events import MessagesAnswer, messages_error
from tokenyard.serve.openai.asking import ServerContext
from tokenyard.serve.openai.chat import ChatCompletions, chat_prompt
from tokenyard.serve.openai.fields import (
    ApiError,
    ChatCompletionRequest,
    JsonSchema,
    NamedFunction,
    NamedToolChoice,
    ResponseFormat,
    StreamOptions,
    bad_field,
    parse_body,
)
from tokenyard.serve.openai.generating import AnswerWriter
from tokenyard.serve.text import ChatTemplate, TemplateError
from tokenyard.web.connections import json_response

# ---------------------------------------------------------------------------------------------------------------------
# The fields that count here; others are ignored.

_MOST_STOPS = 64
_LEAST_BUDGET = 1024
_CHANGES = ("tool_addition", "tool_removal")
_BILLING = "x-anthropic-billing-header"
"""How a text begins that is different with every request, and would keep prompts from being alike."""
_TEXT_OR_BLOCKS = re.compile(r"messages\[\d+\]\.content|system")
_Kind = TypeVar("_Kind", bound="CountTokensRequest")


class Block(msgspec.Struct, kw_only=True):
    """A part of a message."""

    type: Literal[
        "text",
        "image",
        "tool_use",
        "tool_result",
        "tool_reference",
        "thinking",
        "redacted_thinking",
        "tool_addition",
        "tool_removal",
    ]
    text: str | None = None
    source: dict[str, Any] | None = None
    id: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    content: str | list[dict[str, Any]] | None = None
    thinking: str | None = None
    tool: dict[str, Any] | None = None


class Message(msgspec.Struct, kw_only=True):
    """The content of one message."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class Tool(msgspec.Struct, kw_only=True):
    """A tool that may be called."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


class ToolChoice(msgspec.Struct, kw_only=True):
    """Which one is to be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None


class OutputFormat(msgspec.Struct, kw_only=True):
    """What the answer must look like."""

    type: Literal["json_schema"] = "json_schema"
    schema: dict[str, Any] | None = None


class OutputConfig(msgspec.Struct, kw_only=True):
    """How it is answered."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class Thinking(msgspec.Struct, kw_only=True):
    """How much is thought before: nothing here."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted", "updates"] | None = None


class CountTokensRequest(msgspec.Struct, kw_only=True):
    """How many tokens a prompt has."""

    model: Annotated[str, msgspec.Meta(min_length=1)]
    messages: list[Message]
    system: str | list[Block] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesRequest(CountTokensRequest, kw_only=True):
    """What is to be answered."""

    max_tokens: Annotated[int, msgspec.Meta(gt=0)]
    stream: bool | None = None
    stop_sequences: Annotated[list[str], msgspec.Meta(max_length=_MOST_STOPS)] | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    cache_salt: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, Any] | None = None


# ---------------------------------------------------------------------------------------------------------------------
# The endpoints.


class Messages:
    """Both."""

    def __init__(self, context: ServerContext, forms: Forms, chat: ChatCompletions) -> None:
        self._context, self._forms, self._chat = context, forms, chat
        self._own_names = forms.facts.messages_name_errors
        template = context.llm.tokenizer.chat_template if context.llm.tokenizer is not None else None
        self._merges = template is not None and wants_system_first(template)

    async def serve(self, http: Request) -> Response:
        """Answer, or raise."""
        request = await self._read(http, MessagesRequest)
        return await self._chat.answer(http, self._asked(request), formed=self._formed)

    async def count_tokens(self, http: Request) -> Response:
        """The tokens of the prompt."""
        context = self._context
        chat = self._asked(await self._read(http, CountTokensRequest))
        context.check_model(chat.model)
        context.check(chat)
        number = len((await chat_prompt(context, chat)).token_ids)
        return json_response({"input_tokens": number, "context_management": {"original_input_tokens": number}})

    async def _read(self, http: Request, kind: type[_Kind]) -> _Kind:
        """The body. From then on errors have this interface's form; before, vLLM's for bodies that it cannot take."""
        try:
            request: _Kind = (
                await parse_body(http, kind, self._context.limits.max_body_bytes, is_lenient=True)
            ).request
            _check(request)
        except ApiError as error:
            one_of_two = _TEXT_OR_BLOCKS.match(error.param or "")
            if one_of_two is not None:  # that it is no text is the first problem that is reported
                error.param = one_of_two[0]
            raise
        http.state.prompt_field = "messages"
        http.state.error_form = partial(messages_error, own_names=self._own_names)
        return request

    def _formed(self, kind: str, answer: AnswerWriter, request: Any) -> AnswerWriter:
        return MessagesAnswer(self._context.formed(kind, answer, request), own_names=self._own_names)

    def _asked(self, request: CountTokensRequest) -> ChatCompletionRequest:
        """The chat. Raises ApiError."""
        messages = list(_chat_messages(request, merges=self._merges))
        chat = ChatCompletionRequest(
            model=request.model, messages=messages, chat_template_kwargs=request.chat_template_kwargs
        )
        if isinstance(request, MessagesRequest):
            chat.max_tokens = chat.max_completion_tokens = request.max_tokens
            chat.stop, chat.temperature = request.stop_sequences, request.temperature
            chat.top_k, chat.top_p, chat.cache_salt = request.top_k, request.top_p, request.cache_salt
            chat.kv_transfer_params, chat.vllm_xargs = request.kv_transfer_params, request.vllm_xargs
            if request.stream:
                chat.stream, chat.stream_options = True, StreamOptions(include_usage=True, continuous_usage_stats=True)
        form = request.output_config.format if request.output_config is not None else None
        if form is not None and form.schema:
            chat.response_format = ResponseFormat(
                type="json_schema", json_schema=JsonSchema(schema=form.schema, name="json_schema")
            )
        if request.tool_choice is not None:
            chat.tool_choice = _choice(request.tool_choice)
        tools = _tools(request)
        if tools is not None:
            chat.tool_choice = chat.tool_choice or "auto"
        chat.tools = [_function(each) for each in tools or ()] or None
        if chat.tools is None and self._context.tool_parser is not None:
            chat.tool_choice = None  # a choice among no tools says nothing, to a server that reads calls
        return chat


def _check(request: CountTokensRequest) -> None:
    """ApiError for what vLLM does not take as the form of a body."""
    _check_changes("system", request.system, allowed=False)
    for message in request.messages:
        _check_changes("messages", message.content, allowed=message.role == "system")
    choice = request.tool_choice
    if choice is not None and choice.type == "tool" and not choice.name:
        raise _refused("tool_choice", None, "give the name of the tool")
    if request.thinking is not None and request.thinking.type == "enabled":
        _check_budget(request, request.thinking.budget_tokens)


def _refused(field: str | None, value: object, fix: str) -> ApiError:
    return ApiError(400, f"{field or 'the body'} = {shown(value)}: {fix}", param=field, is_form=True)


def _check_changes(field: str, content: str | Sequence[Block] | None, *, allowed: bool) -> None:
    for block in () if content is None or isinstance(content, str) else content:
        if block.type in _CHANGES and block.tool is None:
            raise _refused(field, block.type, "goes with tool")
        if block.type in _CHANGES and not allowed:
            raise _refused(field, block.type, 'goes with the role "system"')


def _check_budget(request: CountTokensRequest, budget: int | None) -> None:
    if budget is None or budget < _LEAST_BUDGET:
        raise _refused("thinking.enabled.budget_tokens", budget, f"give a number from {_LEAST_BUDGET} on")
    if not isinstance(request, MessagesRequest):
        return
    is_prefill = bool((request.kv_transfer_params or {}).get("do_remote_decode"))
    if not is_prefill and budget >= request.max_tokens:
        raise _refused(None, budget, "thinking.budget_tokens has to be less than max_tokens")


# ---------------------------------------------------------------------------------------------------------------------
# Messages as a chat's.


def wants_system_first(template: ChatTemplate) -> bool:
    """Whether the template takes a system's message at the beginning alone."""
    two = [{"role": "system", "content": "t"}, {"role": "user", "content": "t"}]
    try:
        template.render([*two, *two], tools=None, add_generation_prompt=False, variables=None)
    except TemplateError:
        return True
    return False


def _chat_messages(request: CountTokensRequest, *, merges: bool) -> Iterator[dict[str, Any]]:
    """``merges``: what the system says between others is put to the beginning."""
    system = [_system_text(request.system)] if request.system else []
    if merges:
        system += [_system_text(each.content) for each in request.messages if each.role == "system"]
    if any(system):
        yield {"role": "system", "content": "".join(system)}
    for message in request.messages:
        if message.role == "system":
            text = _system_text(message.content)
            if text and not merges:
                yield {"role": "system", "content": text}
        elif isinstance(message.content, str):
            yield {"role": message.role, "content": message.content}
        else:
            yield from _of_blocks(message.role, message.content)


def _system_text(content: str | Sequence[Block]) -> str:
    texts = [content] if isinstance(content, str) else [each.text or "" for each in content if each.type == "text"]
    return "".join(text for text in texts if not text.startswith(_BILLING))


def _of_blocks(role: str, blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    """Answers of tools come before the rest of their message."""
    parts = [part for block in blocks for part in _parts(role, block)]
    if role == "user":
        for block in blocks:
            if block.type == "tool_result":
                yield from _result(block)
    thoughts = [each.thinking for each in blocks if each.type == "thinking" and each.thinking is not None]
    said: dict[str, Any] = {"role": role}
    if thoughts:
        said["reasoning"] = "".join(thoughts)
    calls = [_called(each) for each in blocks if each.type == "tool_use"]
    if calls:
        said["tool_calls"] = calls
    if len(parts) == 1 and parts[0]["type"] == "text":
        said["content"] = parts[0]["text"]
    elif parts:
        said["content"] = parts
    if role != "user" or "content" in said:
        yield said


def _parts(role: str, block: Block) -> Iterator[dict[str, Any]]:
    """What of a block is content of its message."""
    if block.type == "text" and block.text:
        yield {"type": "text", "text": block.text}
    elif block.type == "image" and block.source:
        yield {"type": "image_url", "image_url": {"url": str(block.source.get("url", ""))}}
    elif block.type == "tool_result" and role != "user":
        yield {"type": "text", "text": f"Tool result: {block.content or ''}"}


def _called(block: Block) -> dict[str, Any]:
    function = {"name": block.name or "", "arguments": json.dumps(block.input or {})}
    return {"id": block.id or "call_0", "type": "function", "function": function}


def _result(block: Block) -> Iterator[dict[str, Any]]:
    """What a tool answered: its texts, and images as a message of their own."""
    items = [] if block.content is None or isinstance(block.content, str) else block.content
    texts = [str(each.get("text", "")) for each in items if each.get("type") == "text"]
    text = block.content if isinstance(block.content, str) else "\n".join(texts)
    yield {"role": "tool", "tool_call_id": block.tool_use_id or "", "content": text}
    images = [each for each in items if each.get("type") == "image"]
    if images:
        yield {"role": "user", "content": [{"type": "image_url", "image_url": {}} for _ in images]}


def _choice(choice: ToolChoice) -> Any:
    if choice.type == "tool":
        return NamedToolChoice(type="function", function=NamedFunction(name=choice.name or ""))
    return {"any": "required"}.get(choice.type, choice.type)


def _function(tool: Tool) -> dict[str, Any]:
    schema = {"type": "object", **tool.input_schema}
    named = {"name": tool.name, "description": tool.description, "parameters": schema}
    return {"type": "function", "function": {name: each for name, each in named.items() if each is not None}}


def _tools(request: CountTokensRequest) -> Sequence[Tool] | None:
    """The tools at the end of the conversation: the system may have added and removed some. Raises ApiError."""
    changes = [
        block
        for message in request.messages
        if not isinstance(message.content, str)
        for block in message.content
        if block.type in _CHANGES
    ]
    if not changes:
        return request.tools
    known, removed = {each.name: each for each in request.tools or ()}, set[str]()
    for change in changes:
        told: Mapping[str, Any] = change.tool or {}
        definition, name = told.get("definition"), str(told.get("name", ""))
        if change.type == "tool_addition" and definition is not None:
            try:
                tool = msgspec.convert(definition, Tool)
            except msgspec.ValidationError as error:
                raise bad_field("messages", definition, str(error)) from None
            known[tool.name], name = tool, tool.name
        elif name not in known:
            raise ApiError(400, f"{change.type} names the tool {name!r}, which is not among tools")
        (removed.add if change.type == "tool_removal" else removed.discard)(name)
    return [tool for name, tool in known.items() if name not in removed]
