"""``POST /v1/embeddings``: a vector for each input."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.core.params import PoolingParams
from tokenyard.serve.generation import EmbeddingOutput, TokenizedPrompt, Turn
from tokenyard.serve.openai.asking import ServerContext
from tokenyard.serve.openai.fields import EmbeddingRequest, timed_out
from tokenyard.serve.openai.generating import reply_at_once, request_id_of, tokenized_prompts


class Embeddings:
    """The endpoint."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def serve(self, http: Request) -> Response:
        """Answer, or raise."""
        context = self._context
        http.state.prompt_field = "input"
        body = await context.body(http, EmbeddingRequest)
        request: EmbeddingRequest = body.request
        context.check_model(request.model)
        context.check_open()
        special = request.add_special_tokens is not False
        prompts = await tokenized_prompts(context, "input", request.input, add_special_tokens=special)
        name = request_id_of(request, "embd", http)
        return await reply_at_once(http, self._answer(request, prompts, name), ignored=body.ignored)

    async def _answer(self, request: EmbeddingRequest, prompts: list[TokenizedPrompt], name: str) -> dict[str, Any]:
        outputs = await self.vectors(request, prompts, name)
        data = [
            {"index": i, "object": "embedding", "embedding": written(each.embedding, request.encoding_format)}
            for i, each in enumerate(outputs)
        ]
        return pooled_list(self._context, request, name, data, outputs)

    async def vectors(
        self, request: EmbeddingRequest, prompts: list[TokenizedPrompt], name: str
    ) -> list[EmbeddingOutput]:
        """All at once; if one cannot be had, or takes too long, the others are given up."""
        context = self._context
        params = PoolingParams(pooling_type=request.pooling_type, normalize=request.normalize is not False)
        lora = context.adapter_of(request.model)
        turn = Turn(priority=request.priority or 0, cache_salt=request.cache_salt, lora_name=lora)
        tasks = [
            asyncio.ensure_future(
                context.llm.embed({"prompt_token_ids": prompt.token_ids}, params, f"{name}-{i}", turn=turn)
            )
            for i, prompt in enumerate(prompts)
        ]
        seconds = context.limits.request_timeout_s
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.gather(*tasks)
        except TimeoutError:
            raise timed_out(seconds) from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def pooled_list(
    context: ServerContext,
    request: EmbeddingRequest,
    name: str,
    data: Sequence[Any],
    outputs: Sequence[EmbeddingOutput],
) -> dict[str, Any]:
    """The answer that lists what was made of each prompt, in ``data``."""
    num_tokens = sum(len(each.prompt_token_ids) for each in outputs)
    return {
        "id": name,
        "object": "list",
        "created": int(time.time()),
        "model": context.answering(request.model),
        "data": data,
        "usage": {
            "prompt_tokens": num_tokens,
            "total_tokens": num_tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        },
    }


def written(vector: npt.NDArray[np.floating], encoding: str) -> list[float] | str:
    """Numbers, or the bytes of float32 as base64, which is what OpenAI's client asks for."""
    floats = vector.astype("<f4")
    return floats.tolist() if encoding == "float" else base64.b64encode(floats.tobytes()).decode()
