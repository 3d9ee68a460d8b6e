"""From the name of a model to an engine: loading, and what those around it have to know."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

from tokenyard.core.engine import EngineCore
from tokenyard.core.params import PoolingParams, SamplingParams, StructuredOutput
from tokenyard.errors import OUT_OF_VOCABULARY, ConfigError, MissingExtraError, RequestError
from tokenyard.serve.front import MAX_GRAMMAR_BYTES
from tokenyard.serve.generation import GenerationParams, Prompt, Turn, check_generation_params, tokenized
from tokenyard.serve.grammars import GrammarCompiler
from tokenyard.serve.output_processor import Generation
from tokenyard.serve.text import TextTokenizer

# ---------------------------------------------------------------------------------------------------------------------
# A tiny model with random weights: it has learnt nothing, and everything else about it is real.

DEMO = "demo"
"""The name of the model that is made on the spot."""

_TEMPLATE = (
    "{{ bos_token }}{% if tools %}[tools] {{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def make_demo_model(
    folder: Path, *, layers: int = 2, width: int = 64, max_model_len: int = 2048, seed: int = 0
) -> Path:
    """Write a Llama checkpoint with a byte-level tokenizer and a chat template into ``folder``, which is returned.

    Raises MissingExtraError without torch and transformers.
    """
    try:
        import torch  # noqa: PLC0415 - an extra
        import transformers  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(error.name or "torch", "torch") from None
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=258,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_model_len,
        bos_token_id=256,
        eos_token_id=257,
        tie_word_embeddings=False,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    _byte_tokenizer().save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": _TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def _byte_tokenizer() -> Any:
    """A token per byte, in GPT-2's alphabet, and two special ones."""
    import tokenizers  # noqa: PLC0415 - an extra

    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [each for each in range(256) if each not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(rest)}
    vocab = {letters[byte]: byte for byte in range(256)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


# ---------------------------------------------------------------------------------------------------------------------
# What those around an engine have to know of its model, and generations that suit it.

GrammarSource = Callable[[], GrammarCompiler]
"""Makes the compiler when a request first has a grammar. Raises TokenyardError where there can be none."""


class ServedModel(Protocol):
    """What was loaded; an executor reports it as ``executor.model``."""

    @property
    def name(self) -> str:
        """Name of the model, as it was given."""

    @property
    def device(self) -> str:
        """What it runs on, as its executor names it."""

    @property
    def bytes_per_block(self) -> int | None:
        """Memory of a KV block over all layers; None: the executor does not know."""

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
    """The model of an engine; ConfigError if its executor has none."""
    model = getattr(core.executor, "model", None)
    if model is None:
        raise ConfigError("core", core.executor, "needs an executor that has its model, as `executor.model`")
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
        """One for each sample, being compiled; none if none are requested."""
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
        """The tokens with which the model ends answers are stops, unless they were named or are to be ignored."""
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
            if (unknown := max(ids, default=0)) >= size:
                fix = f"the model's token ids go from 0 to {size - 1}"
                raise RequestError(request_id, field, unknown, fix, code=OUT_OF_VOCABULARY)
        if params.stop and self.tokenizer is None:
            raise RequestError(request_id, "stop", params.stop, "the engine has no tokenizer: use stop_token_ids")
        for field in ("logprobs", "prompt_logprobs"):
            count = getattr(params, field)
            if count is not None and self.max_logprobs >= 0 and not 0 <= count <= self.max_logprobs:
                raise RequestError(request_id, field, count, f"give 0 to {self.max_logprobs} (max_logprobs)")


# ---------------------------------------------------------------------------------------------------------------------
# From the name of a model to an engine that can be stepped, and its tokenizer.


def load_core(model: str | Path | EngineCore, flags: Mapping[str, Any]) -> EngineCore:
    """The engine of a checkpoint, loaded with ``flags``; an engine is its own. Raises TokenyardError."""
    if not isinstance(model, EngineCore):
        from tokenyard.serve.torch.load import load_engine  # noqa: PLC0415 - heavy

        return load_engine(model, **flags)
    if flags:
        raise ConfigError(next(iter(flags)), next(iter(flags.values())), "is for loading: the engine is loaded already")
    return model


def tokenizer_of(
    model: ServedModel, given: str | Path | TextTokenizer | None, chat_template: str | Path | None = None
) -> TextTokenizer | None:
    """The tokenizer that was given, else the model's own; None where it has none."""
    if isinstance(given, TextTokenizer):
        return given
    if given is not None:
        return TextTokenizer.load(given, chat_template)
    own = model.tokenizer
    if own is None or not (own / "tokenizer.json" if own.is_dir() else own).is_file():
        return None
    return TextTokenizer.load(own, chat_template)


def grammars_of(
    model: ServedModel, tokenizer: str | Path | TextTokenizer | None, *, max_grammar_bytes: int = MAX_GRAMMAR_BYTES
) -> GrammarSource:
    """Where the model's grammars come from; ``tokenizer`` as for :func:`tokenizer_of`.

    It raises ConfigError where there is no tokenizer or no end-of-sequence token, MissingExtraError without llguidance.
    """

    @cache
    def make() -> GrammarCompiler:
        path = tokenizer if isinstance(tokenizer, str | Path) else model.tokenizer
        if path is None:
            raise ConfigError("structured_outputs", None, "the engine has no tokenizer, so there are no grammars")
        return GrammarCompiler(path, model.vocab_size, model.eos_token_ids, max_grammar_bytes=max_grammar_bytes)

    return make
