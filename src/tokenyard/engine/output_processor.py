"""From what a step brings to what callers are told: generations by name, their samples, their texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tokenyard.engine.generation import GenerationParams, OutputKind, Turn, check_generation_params, params_of_sample
from tokenyard.engine.grammars import Grammar
from tokenyard.engine.outputs import EmbeddingOutput, GenerationOutput, Logprob
from tokenyard.engine.sample import Sample, logprobs_of
from tokenyard.engine.text.tokenizer import TextTokenizer
from tokenyard.errors import ConfigError, RequestError
from tokenyard.params import PoolingParams
from tokenyard.request import FinishReason, Request
from tokenyard.sched.steps.engine_outputs import EngineOutputs, RequestOutput
from tokenyard.structured import StructuredOutput

__all__ = ["Changes", "Generation", "OutputProcessor"]


class Generation:
    """A prompt and its samples, each a request to the scheduler."""

    def __init__(
        self,
        request_id: str,
        prompt: str | None,
        prompt_token_ids: Sequence[int],
        params: GenerationParams,
        *,
        tokenizer: TextTokenizer | None,
        turn: Turn | None = None,
        grammars: Sequence[StructuredOutput] = (),
        arrival_time: float | None = None,
        pooling: PoolingParams | None = None,
    ) -> None:
        """``grammars`` has one for each sample, or none; with ``pooling`` there is a vector in place of answers.

        Raises RequestError.
        """
        check_generation_params(request_id, params)
        self.request_id = request_id
        self.prompt = prompt
        self.prompt_token_ids = prompt_token_ids
        self.params = params
        self.error: BaseException | None = None
        """Why there are no more outputs, where that is nobody's wish."""
        self._tokenizer = tokenizer
        self._prompt_logprobs: list[dict[int, Logprob] | None] = [None]
        self.samples = [
            Sample(
                index,
                Request(
                    request_id if params.n == 1 else f"{index}_{request_id}",
                    prompt_token_ids,
                    params_of_sample(params, index) if pooling is None else None,
                    pooling_params=pooling,
                    arrival_time=arrival_time,
                    structured_output=grammars[index] if grammars else None,
                    **(turn or Turn())._asdict(),
                ),
                params,
                tokenizer,
            )
            for index in range(params.n)
        ]

    def check_grammars(self) -> None:
        """Wait until its grammars are compiled. RequestError if one cannot be."""
        for sample in self.samples:
            grammar = sample.request.structured_output
            if isinstance(grammar, Grammar):
                try:
                    grammar.check()
                except ConfigError as error:
                    raise RequestError(self.request_id, error.field, error.value, error.fix) from None

    @property
    def is_finished(self) -> bool:
        """No more outputs follow what can be told now."""
        return self.error is not None or all(sample.is_finished for sample in self.samples)

    @property
    def unfinished_ids(self) -> list[str]:
        """Requests that the scheduler still has, as far as is known here."""
        return [sample.request.request_id for sample in self.samples if not sample.is_finished]

    def add_prompt_logprobs(self, sample: Sample, news: RequestOutput) -> None:
        """Those of the first sample; computed twice, as after a preemption, they count once."""
        rows = news.extras.prompt_logprobs
        if sample.index == 0 and rows is not None:
            room = len(self.prompt_token_ids) - len(self._prompt_logprobs)
            self._prompt_logprobs += logprobs_of(rows, self._tokenizer)[:room]

    def embedding(self) -> EmbeddingOutput:
        """The vector, once it has ended. Raises RequestError if it ended without."""
        (sample,) = self.samples
        if sample.embedding is None:
            raise RequestError(self.request_id, "finish_reason", sample.finish_reason, "it has no vector: ask again")
        return EmbeddingOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            embedding=sample.embedding,
            num_cached_tokens=max(0, sample.request.num_cached_tokens),
        )

    def output(self) -> GenerationOutput | None:
        """What a caller is told now, as ``params.output_kind`` says; None: nothing."""
        kind, finished = self.params.output_kind, self.is_finished
        if kind is OutputKind.FINAL_ONLY and not finished:
            return None
        if kind is OutputKind.DELTA:
            outputs = [news for sample in self.samples if (news := sample.news()) is not None]
            if not outputs:
                return None
        else:
            outputs = [sample.whole() for sample in self.samples]
        complete = self.params.prompt_logprobs is not None and len(self._prompt_logprobs) == len(self.prompt_token_ids)
        return GenerationOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            outputs=outputs,
            finished=finished,
            num_cached_tokens=max(0, self.samples[0].request.num_cached_tokens),
            prompt_logprobs=self._prompt_logprobs if complete else None,
        )


class Changes(NamedTuple):
    """What a step has changed."""

    generations: list[Generation]
    """Those with news."""
    to_abort: list[str]
    """Requests that have ended by a stop string: the scheduler has to be told."""


class OutputProcessor:
    """The generations that have not ended. Belongs to one thread."""

    def __init__(self) -> None:
        self._generations: dict[str, Generation] = {}
        self._samples: dict[str, tuple[Generation, Sample]] = {}
        """By the id of the scheduler's request."""

    def __len__(self) -> int:
        """Generations that have not ended."""
        return len(self._generations)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._generations

    @property
    def num_requests(self) -> int:
        """Requests of theirs, those that have ended included while others of the generation have not."""
        return len(self._samples)

    def generations(self) -> list[Generation]:
        """Those that have not ended."""
        return list(self._generations.values())

    def add(self, generation: Generation) -> None:
        """Expect its outputs."""
        assert generation.request_id not in self._generations, "a generation is added once"
        self._generations[generation.request_id] = generation
        self._samples.update({sample.request.request_id: (generation, sample) for sample in generation.samples})

    def process(self, outputs: EngineOutputs) -> Changes:
        """Take in what a step brought.

        What is of nobody any more is passed over, also where another request has its id now.
        """
        changed: dict[str, Generation] = {}
        to_abort = []
        for request, news in zip(outputs.requests, outputs, strict=True):
            known = self._samples.get(news.request_id)
            if known is None or known[1].request is not request:
                continue
            generation, sample = known
            generation.add_prompt_logprobs(sample, news)
            if sample.add(news):
                to_abort.append(news.request_id)
            changed[generation.request_id] = generation
        self._forget_finished(changed.values())
        return Changes(list(changed.values()), to_abort)

    def refuse(self, request_id: str, error: BaseException) -> tuple[Generation, list[str]] | None:
        """A request of the scheduler's was refused, and so is its generation; with its other requests, to abort."""
        known = self._samples.get(request_id)
        return None if known is None else (known[0], self.fail(known[0], error))

    def fail(self, generation: Generation, error: BaseException) -> list[str]:
        """End it with an error; the requests that are to be aborted."""
        left = generation.unfinished_ids
        for sample in generation.samples:
            if not sample.is_finished:
                sample.end(FinishReason.ERROR)
        generation.error = error
        self.forget(generation)
        return left

    def forget(self, generation: Generation) -> None:
        """Expect no more outputs of it."""
        if self._generations.pop(generation.request_id, None) is not None:
            for sample in generation.samples:
                del self._samples[sample.request.request_id]

    def _forget_finished(self, generations: Iterable[Generation]) -> None:
        for each in generations:
            if each.is_finished:
                self.forget(each)
