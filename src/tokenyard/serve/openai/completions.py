"""``POST /v1/completions``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tokenyard.serve.generation import CompletionOutput, GenerationOutput, TokenizedPrompt
from tokenyard.serve.openai.asking import EchoedPrompt, ServerContext, compiled, completion_logprobs, prompt_logprobs
from tokenyard.serve.openai.fields import CompletionRequest
from tokenyard.serve.openai.generating import (
    AnswerWriter,
    PromptNews,
    asked_of,
    output_room,
    reply,
    request_id_of,
    tokenized_prompts,
    told_besides,
)

_DEFAULT_TOKENS = 16


class Completions:
    """The endpoint."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def serve(self, http: Request) -> Response:
        """Answer, or raise."""
        context = self._context
        body = await context.body(http, CompletionRequest)
        request: CompletionRequest = body.request
        context.check_model(request.model)
        context.check_open()
        special = request.add_special_tokens is not False
        given = request.prompt
        prompts = await tokenized_prompts(context, "prompt", given, add_special_tokens=special, n=request.n)
        room = [output_room(context, each, request.max_tokens, default=_DEFAULT_TOKENS) for each in prompts]
        name = request_id_of(request, "cmpl", http)
        grammars = await compiled(http, context, request, len(prompts), most_tokens=max(room))
        asked = asked_of(
            http,
            context,
            request,
            name,
            prompts,
            max_tokens=room,
            logprobs=request.logprobs,
            grammars=grammars,
            echo=bool(request.echo),
        )
        echoed = [self._echoed(request, each) for each in prompts]
        answer = context.formed("completion", _CompletionAnswer(context, request, name, echoed), request)
        return await reply(http, context, asked, answer, stream=bool(request.stream), ignored=body.ignored)

    def _echoed(self, request: CompletionRequest, prompt: TokenizedPrompt) -> str:
        if not request.echo:
            return ""
        return prompt.text if prompt.text is not None else self._context.tokenizer.decode(prompt.token_ids)


class _CompletionAnswer(AnswerWriter):
    """Writes the pieces of one request's answer, as chunks or as one object."""

    def __init__(self, context: ServerContext, request: CompletionRequest, name: str, echoed: Sequence[str]) -> None:
        super().__init__()
        self._context = context
        self._request = request
        self._echoed = echoed
        self._per_prompt = request.n or 1
        self._offsets: dict[int, int] = {}
        """Index of an answer -> characters of it that the client has."""
        model = context.answering(request.model)
        self._head = {"id": name, "object": "text_completion", "created": int(time.time()), "model": model}

    def chunks(self, piece: PromptNews) -> Sequence[dict[str, Any]]:
        """The chunks of a stream that carry a piece."""
        self.usage.add(piece)
        options = self._request.stream_options
        told = [{**self._head, "choices": [self._choice(piece, part)]} for part in piece.outputs]
        if options is not None and options.continuous_usage_stats:
            usage = self.usage.record()
            return [{**each, "usage": usage} for each in told]
        return told

    def last_chunks(self) -> Sequence[dict[str, Any]]:
        """The usage, if it was requested."""
        options = self._request.stream_options
        if options is None or not options.include_usage:
            return ()
        return [{**self._head, "choices": [], "usage": self.usage.record()}]

    def whole(self, pieces: Sequence[PromptNews]) -> dict[str, Any]:
        """All of it at once."""
        choices = []
        for piece in pieces:
            self.usage.add(piece)
            choices += [self._whole_choice(piece, part) for part in piece.outputs]
        in_order = sorted(choices, key=lambda each: each["index"])
        answer = {**self._head, "choices": in_order, "usage": self.usage.record()}
        return {**answer, **told_besides(pieces)}

    def _whole_choice(self, piece: PromptNews, part: CompletionOutput) -> dict[str, Any]:
        request = self._request
        tells_prompt = request.prompt_logprobs is not None or (request.echo and request.logprobs is not None)
        of_prompt = prompt_logprobs(piece.output) if tells_prompt else None
        of_ids = {"prompt_token_ids": list(piece.output.prompt_token_ids)} if self._request.return_token_ids else {}
        return {**self._choice(piece, part), "prompt_logprobs": of_prompt, **of_ids}

    def _choice(self, piece: PromptNews, part: CompletionOutput) -> dict[str, Any]:
        index = piece.prompt * self._per_prompt + part.index
        first = index not in self._offsets
        offset = self._offsets.setdefault(index, 0)
        text = (self._echoed[piece.prompt] if first else "") + part.text
        self._offsets[index] = offset + len(text)
        return {
            "index": index,
            "text": text,
            "logprobs": completion_logprobs(part, offset, self._echoed_tokens(piece.output) if first else None),
            "finish_reason": part.finish_reason,
            "stop_reason": part.stop_reason,
            **({"token_ids": list(part.token_ids)} if self._request.return_token_ids else {}),
        }

    def _echoed_tokens(self, output: GenerationOutput) -> EchoedPrompt | None:
        if not self._request.echo or output.prompt_logprobs is None:
            return None
        first = self._context.tokenizer.token_text(output.prompt_token_ids[0])
        return EchoedPrompt(output.prompt_token_ids, output.prompt_logprobs, first)
