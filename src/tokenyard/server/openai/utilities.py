"""What operators and tools ask for: the model's name, its tokens, health, metrics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tokenyard.server.openai.chat import chat_prompt
from tokenyard.server.openai.context import ServerContext
from tokenyard.server.openai.decoding import decoded
from tokenyard.server.openai.errors import ApiError, bad_field
from tokenyard.server.openai.fields import DetokenizeRequest, TokenizeRequest
from tokenyard.server.openai.generating import in_thread_if_long
from tokenyard.server.web.problems import json_response

__all__ = ["Utilities"]


class Utilities:
    """The endpoints."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def models(self, _: Request) -> Response:
        """The names of the one model, and its adapters."""
        context = self._context
        adapters = context.llm.model.adapters
        parents = dict.fromkeys(context.names) | dict.fromkeys(adapters, context.names[0])
        data = [
            {
                "id": name,
                "object": "model",
                "created": context.created,
                "owned_by": "tokenyard",
                "root": context.llm.model.name if parent is None else name,
                "parent": parent,
                "max_model_len": context.llm.model.max_model_len,
            }
            for name, parent in parents.items()
        ]
        return json_response({"object": "list", "data": data})

    async def health(self, _: Request) -> Response:
        """200 while requests are answered."""
        self._context.check_open()
        return Response()

    async def metrics(self, _: Request) -> Response:
        """Prometheus's text."""
        if self._context.metrics is None:
            raise ApiError(404, "this server keeps no metrics")
        text, kind = self._context.metrics()
        return Response(text, headers={"Content-Type": kind})

    async def tokenize(self, http: Request) -> Response:
        """The token ids of a prompt, or of messages."""
        context = self._context
        request = (await decoded(http, TokenizeRequest, context.limits.max_body_bytes)).request
        context.check_model(request.model)
        if (request.prompt is None) == (request.messages is None):
            raise bad_field("prompt", request.prompt, "give a prompt or messages")
        if request.messages is not None:
            ids = (await chat_prompt(context, request)).token_ids
        else:
            special = request.add_special_tokens is not False
            tokenizer = context.tokenizer
            context.check_length("prompt", request.prompt, len(request.prompt))
            work = lambda: tokenizer.encode(request.prompt, add_special_tokens=special)  # noqa: E731
            ids = await in_thread_if_long(len(request.prompt), work)
        texts = None
        if request.return_token_strs:
            texts = await in_thread_if_long(len(ids), lambda: [context.tokenizer.token_text(each) for each in ids])
        limit = context.llm.model.max_model_len
        return json_response({"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": texts})

    async def detokenize(self, http: Request) -> Response:
        """The text of token ids."""
        context = self._context
        request = (await decoded(http, DetokenizeRequest, context.limits.max_body_bytes)).request
        context.check_model(request.model)
        size = context.llm.model.vocab_size
        for each in request.tokens:
            if not 0 <= each < size:
                raise bad_field("tokens", each, f"the model's token ids go from 0 to {size - 1}")
        text = await in_thread_if_long(
            len(request.tokens), lambda: context.tokenizer.decode(request.tokens, skip_special_tokens=False)
        )
        return json_response({"prompt": text})
