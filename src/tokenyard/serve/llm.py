"""Offline: all prompts are added before the first step, and all answers come back together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

from tokenyard.core.engine import EngineCore
from tokenyard.core.params import PoolingParams, SamplingParams
from tokenyard.errors import ConfigError, EngineDeadError
from tokenyard.serve.generation import (
    EmbeddingOutput,
    GenerationOutput,
    GenerationParams,
    Prompt,
    Turn,
    read_generation_config,
)
from tokenyard.serve.output_processor import Generation, OutputProcessor
from tokenyard.serve.served_model import GenerationMaker, grammars_of, load_core, model_of, tokenizer_of
from tokenyard.serve.text import TextTokenizer


class LLM:
    """A model and its engine, for batches (vLLM's ``LLM``).

    with LLM("path/of/a/model") as llm:
        for output in llm.generate(["Hello", "How are"], SamplingParams(max_tokens=32)):
            print(output.outputs[0].text)
    """

    def __init__(
        self,
        model: str | Path | EngineCore,
        *,
        tokenizer: str | Path | TextTokenizer | None = None,
        max_logprobs: int = 20,
        generation_config: str = "auto",
        override_generation_config: Mapping[str, Any] | None = None,
        **flags: Any,
    ) -> None:
        """``model`` is a directory with a checkpoint, loaded with ``flags`` (those of ``load_engine``), or an engine.

        ``tokenizer`` is the model's own unless given. ``generation_config`` and ``override_generation_config``, as the
        flags of ``tokenyard serve``, are where prompts without parameters get theirs from. Raises TokenyardError.
        """
        self.core = load_core(model, flags)
        """The engine; its scheduler and executor hang on it."""
        served = model_of(self.core)
        self.tokenizer = tokenizer_of(served, tokenizer)
        """None where the model has none: prompts are token ids then, and answers have no text."""
        self._maker = GenerationMaker(
            served,
            self.tokenizer,
            self.core.scheduler.clock,
            max_logprobs=max_logprobs,
            grammars=grammars_of(served, tokenizer),
        )
        defaults = read_generation_config(Path(served.name), generation_config, override_generation_config)
        limit: dict[str, Any] = {} if defaults.max_new_tokens is None else {"max_tokens": defaults.max_new_tokens}
        self.default_sampling_params = GenerationParams(**defaults.params, **limit)
        """Parameters of prompts that come without any (vLLM's ``get_default_sampling_params``)."""
        self._processor = OutputProcessor()
        self._numbers = count()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        turns: Sequence[Turn] | None = None,
        use_tqdm: bool = False,
    ) -> list[GenerationOutput]:
        """The answers, in the order of the prompts; waits for all of them.

        One prompt may stand alone, as a text or a dictionary; a list of token ids is one in a list, or in a dictionary.
        ``sampling_params`` are those of all prompts, or one for each; GenerationParams also have ``n`` and ``stop``.
        ``use_tqdm`` shows a progress bar on standard error. Raises RequestError before the first step for a
        prompt that cannot be served, and then none is; whatever the model raises.
        """
        asked = _listed(prompts)
        params = _for_each("sampling_params", sampling_params, len(asked), self.default_sampling_params)
        belongs = _for_each("turns", turns, len(asked), Turn())
        generations = [
            self._maker.make(str(next(self._numbers)), prompt, each, turn=turn)
            for prompt, each, turn in zip(asked, params, belongs, strict=True)
        ]
        for each in generations:
            each.check_grammars()
        self._serve(generations, shows_bar=use_tqdm)
        return [_final(each) for each in generations]

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        *,
        turns: Sequence[Turn] | None = None,
        use_tqdm: bool = False,
    ) -> list[EmbeddingOutput]:
        """A vector for each prompt, made of the model's last hidden states as ``pooling_params`` say.

        Everything else is as for :meth:`generate`.
        """
        asked = _listed(prompts)
        params = _for_each("pooling_params", pooling_params, len(asked), PoolingParams())
        belongs = _for_each("turns", turns, len(asked), Turn())
        generations = [
            self._maker.make(str(next(self._numbers)), prompt, GenerationParams(), turn=turn, pooling=each)
            for prompt, each, turn in zip(asked, params, belongs, strict=True)
        ]
        self._serve(generations, shows_bar=use_tqdm)
        return [each.embedding() for each in generations]

    def _serve(self, generations: Sequence[Generation], *, shows_bar: bool) -> None:
        self._add(generations)
        try:
            self._run(len(generations), shows_bar=shows_bar)
        finally:
            self._give_up()

    def _add(self, generations: Sequence[Generation]) -> None:
        """All of them, or none: what was added before one that is refused is taken back."""
        added: list[str] = []
        try:
            for each in generations:
                for sample in each.samples:
                    added.append(sample.request.request_id)
                    self.core.add_request(sample.request)
        except BaseException:
            with suppress(EngineDeadError):  # as below
                self.core.abort_requests(added)
            raise
        for each in generations:
            self._processor.add(each)

    def _run(self, number: int, *, shows_bar: bool) -> None:
        with _bar(number) if shows_bar else nullcontext() as advance:
            while len(self._processor):
                before = len(self._processor)
                outputs = self.core.step()
                if outputs is None:
                    continue
                changes = self._processor.process(outputs)
                if changes.to_abort:
                    self.core.abort_requests(changes.to_abort)
                if advance is not None and len(self._processor) != before:
                    advance(before - len(self._processor))

    def _give_up(self) -> None:
        """After an error or an interrupt, requests that have not ended are aborted."""
        for each in self._processor.generations():
            left = each.unfinished_ids
            self._processor.forget(each)
            with suppress(EngineDeadError):  # a call was broken off in its middle: what left it is raised
                self.core.abort_requests(left)

    def shutdown(self) -> None:
        """Let go of the model."""
        self.core.shutdown()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _listed(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """Token ids stand in a list or a mapping, so what is left is a list of prompts; no type tells that."""
    lone = isinstance(prompts, str | Mapping)
    return [prompts] if lone else list(prompts)  # type: ignore[arg-type, list-item]  # as said


def _for_each(field: str, given: Any, number: int, default: Any) -> Sequence[Any]:
    """One value per prompt. Raises ConfigError."""
    if given is None:
        return [default] * number
    if isinstance(given, SamplingParams) or not isinstance(given, Sequence):
        return [given] * number
    if len(given) != number:
        raise ConfigError(field, f"{len(given)} of them", f"give one, or one for each of the {number} prompts")
    return given


def _final(generation: Generation) -> GenerationOutput:
    news = generation.news()
    assert news is not None, "a generation that has ended has news"
    return generation.output(news)


class _bar:  # noqa: N801 - a context manager
    """A progress bar on standard error; enters as what advances it."""

    def __init__(self, number: int) -> None:
        from rich.console import Console  # noqa: PLC0415 - only where a bar is shown
        from rich.progress import Progress  # noqa: PLC0415

        self._progress = Progress(console=Console(stderr=True))
        self._task = self._progress.add_task("generating", total=number)

    def __enter__(self) -> Any:
        self._progress.start()
        return lambda by: self._progress.advance(self._task, by)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
