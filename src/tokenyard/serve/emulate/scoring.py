"""What servers of pooling models answer beside embeddings: ``/pooling``, ``/score`` and ``/rerank``.

vLLM makes both of the vectors that it makes of texts: a score is the cosine of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.serve.emulate.application import Endpoint, Path
from tokenyard.serve.generation import EmbeddingOutput
from tokenyard.serve.openai.asking import ServerContext
from tokenyard.serve.openai.chat import chat_prompt
from tokenyard.serve.openai.embeddings import Embeddings, pooled_list, written
from tokenyard.serve.openai.fields import ApiError, EmbeddingRequest, TokenizeRequest, bad_field
from tokenyard.serve.openai.generating import reply_at_once, request_id_of, tokenized_prompts

_POST = ("POST",)
_PAIRS = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
"""What the two sides of a score are called."""


class _PoolingRequest(EmbeddingRequest, kw_only=True):
    """``POST /pooling``."""

    input: str | list[Any] | None = None  # type: ignore[assignment]
    messages: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = False
    task: Literal["embed", "classify", "token_embed", "token_classify", "plugin", "embed&token_classify"] | None = None


class _ScoreRequest(EmbeddingRequest, kw_only=True):
    """``POST /score``."""

    input: str | list[Any] | None = None  # type: ignore[assignment]
    queries: str | list[str] | None = None
    documents: str | list[str] | None = None
    items: str | list[str] | None = None
    data_1: str | list[str] | None = None
    data_2: str | list[str] | None = None
    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None


class _RerankRequest(EmbeddingRequest, kw_only=True):
    """``POST /rerank``."""

    input: str | list[Any] | None = None  # type: ignore[assignment]
    query: str
    documents: str | list[str]
    top_n: int = 0


def scoring_paths(scoring: Scoring) -> list[Path]:
    """The paths of a model that makes vectors of texts; it makes no classes."""
    paths = [Path("/pooling", scoring.pool, _POST)]
    paths += [Path(path, scoring.score, _POST) for path in ("/score", "/v1/score")]
    return paths + [Path(path, scoring.rerank, _POST) for path in ("/rerank", "/v1/rerank", "/v2/rerank")]


class Scoring:
    """The endpoints."""

    def __init__(self, context: ServerContext, embeddings: Embeddings) -> None:
        self._context, self._embeddings = context, embeddings

    @property
    def invoked(self) -> dict[str, Endpoint]:
        """The endpoint by the field that names it."""
        return {"query": self.rerank, **{name: self.score for name, _ in _PAIRS}}

    async def pool(self, http: Request) -> Response:
        """The vectors of texts, or of a chat, under another name than that of embeddings."""
        context = self._context
        body = await self._body(http, _PoolingRequest)
        request: _PoolingRequest = body.request
        if request.normalize is not None:
            raise bad_field("normalize", request.normalize, "is not known any more: leave it out")
        if request.input is None and request.messages is None:
            raise ApiError(400, "input: is missing, and has to be given", param="input", is_form=True)
        context.check_model(request.model)
        if request.task not in (None, "embed"):
            raise bad_field("task", request.task, "the model makes embeddings: give embed, or leave it out")
        if request.messages is not None:
            chat = TokenizeRequest(
                messages=request.messages, add_generation_prompt=request.add_generation_prompt, add_special_tokens=False
            )
            prompts = [await chat_prompt(context, chat)]
        else:
            special = request.add_special_tokens is not False
            prompts = await tokenized_prompts(context, "input", request.input, add_special_tokens=special)
        name = request_id_of(request, "pooling", http)

        async def answer() -> dict[str, Any]:
            outputs = await self._embeddings.vectors(request, prompts, name)
            data = [
                {"index": i, "object": "pooling", "data": written(each.embedding, request.encoding_format)}
                for i, each in enumerate(outputs)
            ]
            return self._listed(request, name, data, outputs)

        return await reply_at_once(http, answer(), ignored=body.ignored)

    async def score(self, http: Request) -> Response:
        """How near texts are to each other: one to each of the others, or pairs."""
        body = await self._body(http, _ScoreRequest)
        request: _ScoreRequest = body.request
        sides = next(
            (pair for pair in _PAIRS if None not in (getattr(request, pair[0]), getattr(request, pair[1]))), None
        )
        if sides is None:
            raise ApiError(400, "queries: is missing, and has to be given", param="queries", is_form=True)
        self._context.check_model(request.model)
        first, second = (_texts(getattr(request, side)) for side in sides)
        name = request_id_of(request, "score", http)

        async def answer() -> dict[str, Any]:
            scores, outputs = await self._scores(request, first, second, name)
            data = [{"index": i, "object": "score", "score": each} for i, each in enumerate(scores)]
            return self._listed(request, name, data, outputs)

        return await reply_at_once(http, answer(), ignored=body.ignored)

    async def rerank(self, http: Request) -> Response:
        """Documents, the nearest to the query first."""
        body = await self._body(http, _RerankRequest)
        request: _RerankRequest = body.request
        if request.top_n < 0:
            raise ApiError(400, f"top_n = {request.top_n}: give a number from 0", param="top_n", is_form=True)
        self._context.check_model(request.model)
        documents = _texts(request.documents)
        name = request_id_of(request, "score", http)

        async def answer() -> dict[str, Any]:
            scores, outputs = await self._scores(request, [request.query], documents, name)
            ranked = sorted(enumerate(scores), key=lambda each: -each[1])[: request.top_n or None]
            return {
                "id": name,
                "model": self._context.answering(request.model),
                "usage": dict.fromkeys(("prompt_tokens", "total_tokens"), _num_tokens(outputs)),
                "results": [
                    {"index": i, "document": {"text": documents[i], "multi_modal": None}, "relevance_score": each}
                    for i, each in ranked
                ],
            }

        return await reply_at_once(http, answer(), ignored=body.ignored)

    # ---- what they have in common

    async def _body(self, http: Request, kind: type[EmbeddingRequest]) -> Any:
        context = self._context
        http.state.prompt_field = "input"
        body = await context.body(http, kind)
        context.check_open()
        return body

    async def _scores(
        self, request: EmbeddingRequest, first: Sequence[str], second: Sequence[str], name: str
    ) -> tuple[list[float], list[EmbeddingOutput]]:
        """One for each of ``second``, and the vectors of all texts."""
        if len(first) not in (1, len(second)):
            raise ApiError(400, f"{len(first)} texts and {len(second)}: give one, or as many as of the others")
        if not first or not second:
            raise ApiError(400, "no text: give at least one on both sides")
        special = request.add_special_tokens is not False
        prompts = await tokenized_prompts(self._context, "input", [*first, *second], add_special_tokens=special)
        outputs = await self._embeddings.vectors(request, prompts, name)
        vectors = [each.embedding for each in outputs]
        left = vectors[: len(first)] * (len(second) // len(first))
        return [_cosine(*pair) for pair in zip(left, vectors[len(first) :], strict=True)], outputs

    def _listed(
        self, request: EmbeddingRequest, name: str, data: Sequence[Any], outputs: Sequence[EmbeddingOutput]
    ) -> dict[str, Any]:
        return pooled_list(self._context, request, name, data, outputs)


def _texts(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def _num_tokens(outputs: Sequence[EmbeddingOutput]) -> int:
    return sum(len(each.prompt_token_ids) for each in outputs)


def _cosine(one: npt.NDArray[np.floating], other: npt.NDArray[np.floating]) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))
