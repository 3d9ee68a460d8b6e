"""The application: paths, keys, metrics, and what stands behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tokenyard.errors import TokenyardError
from tokenyard.serve.openai.asking import ServerContext
from tokenyard.serve.openai.chat import ChatCompletions, chat_prompt
from tokenyard.serve.openai.clients import Ending, GoneError, on_gone
from tokenyard.serve.openai.completions import Completions
from tokenyard.serve.openai.embeddings import Embeddings
from tokenyard.serve.openai.fields import (
    ApiError,
    DetokenizeRequest,
    TokenizeRequest,
    as_api_error,
    bad_field,
    on_api_error,
    parse_body,
)
from tokenyard.serve.openai.generating import in_thread_if_long
from tokenyard.web.connections import ApiKeys, Guard, RefusedError, is_loopback, json_response

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


def no_key() -> Response:
    """The answer to a request without a valid API key."""
    return ApiError(
        401,
        "the request has no valid API key: send  Authorization: Bearer KEY",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    ).response()


# ---------------------------------------------------------------------------------------------------------------------
# What Prometheus is notified when it asks.


def scraped(registry: CollectorRegistry) -> Callable[[], tuple[bytes, str]]:
    """Gives the text of a registry's metrics, and its content type."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415 - an extra

    return lambda: (generate_latest(registry), CONTENT_TYPE_LATEST)


def together(texts: Iterable[bytes]) -> bytes:
    """One text of several engines' metrics: a family is described once, and its samples follow each other."""
    families: dict[bytes, tuple[dict[bytes, None], list[bytes]]] = {}
    for text in texts:
        described: dict[bytes, None] = {}
        samples: list[bytes] = []
        for line in text.splitlines():
            if line.startswith(b"# HELP "):
                described, samples = families.setdefault(line.split(b" ", 3)[2], ({}, []))
            if line.startswith(b"#"):
                described[line] = None
            else:
                samples.append(line)
    lines = [line for described, samples in families.values() for line in (*described, *samples)]
    return b"".join(line + b"\n" for line in lines)


# ---------------------------------------------------------------------------------------------------------------------
# What operators and tools ask for: the model's name, its tokens, health, metrics.


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
        request = (await parse_body(http, TokenizeRequest, context.limits.max_body_bytes)).request
        context.check_model(request.model)
        if (request.prompt is None) == (request.messages is None):
            error = bad_field("prompt", request.prompt, "give a prompt or messages")
            error.is_form = request.prompt is None
            raise error
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
        request = (await parse_body(http, DetokenizeRequest, context.limits.max_body_bytes)).request
        context.check_model(request.model)
        size = context.llm.model.vocab_size
        if context.is_lenient:  # as vLLM is: what is no token has no text
            request.tokens = [each for each in request.tokens if 0 <= each < size]
        for each in request.tokens:
            if not 0 <= each < size:
                raise bad_field("tokens", each, f"the model's token ids go from 0 to {size - 1}")
        text = await in_thread_if_long(
            len(request.tokens), lambda: context.tokenizer.decode(request.tokens, skip_special_tokens=False)
        )
        return json_response({"prompt": text})


# ---------------------------------------------------------------------------------------------------------------------
# The application: which path is answered by whom, and who may send requests.


def make_api(context: ServerContext, *, host: str = "127.0.0.1", api_keys: Sequence[str] = ()) -> Starlette:
    """An ASGI application that starts the engine when it starts, and shuts it down when it ends.

    ``host`` is the address it will listen on: on a loopback address pages of other sites are refused.
    """
    chat, completions, utilities = ChatCompletions(context), Completions(context), Utilities(context)
    embeddings = Embeddings(context)
    routes = [
        Route("/v1/completions", completions.serve, methods=["POST"]),
        Route("/v1/chat/completions", chat.serve, methods=["POST"]),
        Route("/v1/embeddings", embeddings.serve, methods=["POST"]),
        Route("/v1/models", utilities.models),
        Route("/tokenize", utilities.tokenize, methods=["POST"]),
        Route("/detokenize", utilities.detokenize, methods=["POST"]),
        Route("/health", utilities.health),
        Route("/metrics", utilities.metrics),
    ]
    middleware = [Middleware(ApiKeys, keys=api_keys, refuse=no_key)] if api_keys else []
    middleware.insert(0, Middleware(Ending))
    if is_loopback(host):
        middleware.insert(0, Middleware(Guard, bound=host, refuse=_refusal))
    handlers: dict[int | type[Exception], Callable[[Request, Exception], Response]] = {
        ApiError: on_api_error,
        RefusedError: on_api_error,
        TokenyardError: on_api_error,
        GoneError: on_gone,
        ClientDisconnect: on_gone,
        404: unknown_path,
        405: unknown_path,
        500: on_api_error,
    }

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        async with context.llm:
            yield

    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=life)


def _refusal(problem: RefusedError) -> Response:
    return as_api_error(problem).response()


def unknown_path(request: Request, error: Exception) -> Response:
    """Answer who asks for a path that there is not, or by another method."""
    status = getattr(error, "status_code", 404)
    if status == 405:
        allowed = dict(getattr(error, "headers", None) or {})
        return ApiError(405, f"{request.url.path} is not asked by {request.method}", headers=allowed).response()
    return ApiError(404, f"{request.url.path}: there is no such path").response()
