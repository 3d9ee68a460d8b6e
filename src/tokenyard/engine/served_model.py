"""What those around an engine have to know of its model, and generations that suit it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from tokenyard.engine.core import EngineCore
from tokenyard.engine.generation import GenerationParams, Turn, check_generation_params
from tokenyard.engine.grammars import GrammarCompiler
from tokenyard.engine.output_processor import Generation
from tokenyard.engine.prompts import Prompt, tokenized
from tokenyard.engine.text.tokenizer import TextTokenizer
from tokenyard.errors import ConfigError, RequestError
from tokenyard.params import PoolingParams, SamplingParams
from tokenyard.structured import StructuredOutput

__all__ = ["GenerationMaker", "GrammarSource", "ServedModel", "model_of"]

GrammarSource = Callable[[], GrammarCompiler]
"""Makes the compiler when a grammar is first asked for. Raises TokenyardError where there can be none."""


class ServedModel(Protocol):
    """What was loaded; an executor tells it as ``executor.model``."""

    @property
    def name(self) -> str:
        """As it was asked for."""

    @property
    def device(self) -> str:
        """What it runs on, as its executor names it."""

    @property
    def bytes_per_block(self) -> int | None:
        """Memory of a KV block over all layers; None: nobody knows."""

    @property
    def vocab_size(self) -> int:
        """Rows of its embedding: token ids are below."""

    @property
    def max_model_len(self) -> int:
        """Longest prompt and output together, in tokens."""

    @property
    def eos_token_ids(self) -> Sequence[int]:
        """Tokens with which it ends an answer; may be empty."""

    @property
    def adapters(self) -> Sequence[str]:
        """LoRA adapters that requests may ask for."""

    @property
    def tokenizer(self) -> Path | None:
        """Directory that may hold a tokenizer.json, or that file; None where there is none."""


def model_of(core: EngineCore) -> ServedModel:
    """The model of an engine; ConfigError if its executor does not tell it."""
    model = getattr(core.executor, "model", None)
    if model is None:
        raise ConfigError("core", core.executor, "needs an executor that tells its model, as `executor.model`")
    return cast(ServedModel, model)


class GenerationMaker:
    """Makes generations of prompts as callers give them; whatever cannot work for this model is refused."""

    def __init__(
        self,
        model: ServedModel,
        tokenizer: TextTokenizer | None,
        clock: Callable[[], float],
        *,
        max_logprobs: int = 20,
        grammars: GrammarSource | None = None,
    ) -> None:
        """``grammars`` is where grammars come from, if generations may ask for them."""
        self.model = model
        self.tokenizer = tokenizer
        self.max_logprobs = max_logprobs
        """Most log-probabilities per token, beside the token's own; -1: as many as the vocabulary has."""
        self._clock = clock
        self._grammars = grammars

    def make(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams,
        *,
        turn: Turn | None = None,
        grammars: Sequence[StructuredOutput] = (),
        add_special_tokens: bool = True,
        pooling: PoolingParams | None = None,
    ) -> Generation:
        """A generation that arrives now. Raises RequestError."""
        text, token_ids = tokenized(request_id, prompt, self.tokenizer, add_special_tokens=add_special_tokens)
        wanted = GenerationParams.of(params)
        grammars = grammars or self._grammars_of(request_id, wanted)
        generation = Generation(
            request_id,
            text,
            token_ids,
            self._with_eos(wanted),
            tokenizer=self.tokenizer,
            turn=turn,
            grammars=grammars,
            arrival_time=self._clock(),
            pooling=pooling,
        )
        self._check(request_id, generation.prompt_token_ids, wanted)
        return generation

    def _grammars_of(self, request_id: str, params: GenerationParams) -> Sequence[StructuredOutput]:
        """One for each sample, being compiled; none if none are asked for."""
        check_generation_params(request_id, params)
        asked = params.structured_outputs
        if asked is None:
            return ()
        if self._grammars is None:
            fix = "the engine makes no grammars of its own: leave it out, or give grammars"
            raise RequestError(request_id, "structured_outputs", asked.given(), fix)
        try:
            first = self._grammars().compile(**asked.given())
        except ConfigError as error:
            raise RequestError(request_id, error.field, error.value, error.fix) from None
        return [first, *(first.another() for _ in range(1, params.n))]

    def _with_eos(self, params: GenerationParams) -> GenerationParams:
        """The tokens with which the model ends answers are stops, unless they were named or are to be passed over."""
        ends = self.model.eos_token_ids
        if not ends or params.ignore_eos or params.eos_token_id is not None:
            return params
        more = tuple(each for each in ends[1:] if each not in params.stop_token_ids)
        return replace(params, eos_token_id=ends[0], stop_token_ids=(*params.stop_token_ids, *more))

    def _check(self, request_id: str, prompt: Sequence[int], params: GenerationParams) -> None:
        size = self.model.vocab_size
        named: dict[str, Iterable[int]] = {
            "prompt_token_ids": prompt,
            "stop_token_ids": params.stop_token_ids,
            "logit_bias": params.logit_bias or (),
        }
        for field, ids in named.items():
            unknown = next((each for each in ids if each >= size), None)
            if unknown is not None:
                raise RequestError(request_id, field, unknown, f"the model's token ids go from 0 to {size - 1}")
        if params.stop and self.tokenizer is None:
            raise RequestError(request_id, "stop", params.stop, "the engine has no tokenizer: use stop_token_ids")
        for field in ("logprobs", "prompt_logprobs"):
            count = getattr(params, field)
            if count is not None and self.max_logprobs >= 0 and not 0 <= count <= self.max_logprobs:
                raise RequestError(request_id, field, count, f"give 0 to {self.max_logprobs} (max_logprobs)")
