"""From what a step brings to what callers are notified: samples that grow, their text, their ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tokenyard.core.params import PoolingParams, StructuredOutput
from tokenyard.core.request import FinishReason, Request
from tokenyard.core.sched.outputs import NO_AUX_OUTPUT, EngineOutputs, RequestOutput, TokenLogprobs
from tokenyard.errors import ConfigError, RequestError
from tokenyard.serve.generation import (
    CompletionOutput,
    EmbeddingOutput,
    GenerationOutput,
    GenerationParams,
    Logprob,
    OutputKind,
    Turn,
    check_generation_params,
    params_of_sample,
)
from tokenyard.serve.grammars import Grammar
from tokenyard.serve.text import CONTEXT_TOKENS, Detokenizer, StopStrings, TextTokenizer

_NO_STOPS = StopStrings(())


# ---------------------------------------------------------------------------------------------------------------------
# One answer while it grows: tokens, text, log-probabilities, and why it ended.


class Sample:
    """The answer to one request to the scheduler, as it grows. Without a tokenizer it has no text."""

    def __init__(self, index: int, request: Request, params: GenerationParams, tokenizer: TextTokenizer | None) -> None:
        self.index = index
        self.request = request
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.kv_transfer_params: Mapping[str, object] | None = None
        """What a connector wants the client to hand on."""
        self.embedding: Any = None
        """The prompt's vector, where that was requested in place of tokens."""
        self._params = params
        self._tokenizer = tokenizer
        self._text = ""
        self._token_ids: list[int] = []
        self._logprobs: list[dict[int, Logprob]] | None = None if params.logprobs is None else []
        self._cumulative = 0.0
        self._stops = _NO_STOPS
        if params.stop:
            self._stops = StopStrings(params.stop, include=params.include_stop_str_in_output)
        self._held_back = self._stops.held_back()
        self._detokenizer: Detokenizer | None = None
        self._waits = params.output_kind is OutputKind.FINAL_ONLY and not params.stop
        """No text is looked at before the end: it is made then, of all tokens together."""
        self.is_kept = self._waits and params.logprobs is None
        """Its tokens are the request's until it ends: no one looks at them before."""
        if not self._waits:
            self._detokenizer = self._new_detokenizer()
        is_asked_more = params.logprobs is not None or self._stops is not _NO_STOPS
        self._is_only_text = self._detokenizer is not None and not is_asked_more
        """Tokens become text and nothing else is looked at."""
        self._num_without_text = 0
        """Tokens at the end that have none, where the text is made then."""
        self._num_told_chars = self._num_told_tokens = 0
        self._end_told = False

    def _new_detokenizer(self) -> Detokenizer | None:
        if self._tokenizer is None:
            return None
        end, skips = self.request.num_prompt_tokens, self._params.skip_special_tokens
        context = self.request.token_slice(max(0, end - CONTEXT_TOKENS), end).tolist()
        return Detokenizer(self._tokenizer, context, skip_special_tokens=skips)

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def num_tokens(self) -> int:
        """Output tokens so far."""
        return self.request.num_output_tokens if self.is_kept else len(self._token_ids)

    def add(self, news: RequestOutput) -> bool:
        """Take in what a step brought; True if a stop string ended it, which the scheduler does not know."""
        if self.finish_reason is not None:
            return False
        if news.extras is not NO_AUX_OUTPUT and news.extras.pooling_output is not None:
            self.embedding = news.extras.pooling_output
        if news.kv_transfer_params is not None:
            self.kv_transfer_params = news.kv_transfer_params
        stopped = self._add_tokens(news)
        if not stopped and news.finish_reason is not None:
            self.end(news.finish_reason, news.stop_reason)
        return stopped and news.finish_reason is None

    def end(self, reason: str, stop_reason: int | str | None = None) -> None:
        """End it; what was held back of its text is given out, unless that completes a stop string."""
        if self.is_kept:
            self._token_ids = self.request.output_token_ids
        if self._waits and not self.is_finished:
            self._detokenizer = self._new_detokenizer()
        if self._detokenizer is not None and not self._waits:
            self._append(self._detokenizer.flush())
        elif self._detokenizer is not None and not self.is_finished:
            count = len(self._token_ids) - self._num_without_text
            self._append(self._detokenizer.last(self._token_ids[:count]))
        if not self.is_finished or reason in (FinishReason.ABORT, FinishReason.ERROR):
            self.finish_reason, self.stop_reason = str(reason), stop_reason

    def _add_tokens(self, news: RequestOutput) -> bool:
        """True if a stop string was found; tokens after the one that completed it are dropped."""
        hidden = -1 if news.finish_reason is None else self._hidden_end(news)
        if self.is_kept:
            self._num_without_text = int(hidden >= 0)
            return False
        if self._is_only_text:
            self._token_ids += news.new_token_ids
            for token in news.new_token_ids if hidden < 0 else news.new_token_ids[:hidden]:
                self._text += self._detokenizer.add(token)  # type: ignore[union-attr]
            return False
        logprobs, detokenizer = news.extras.logprobs, self._detokenizer
        for i, token in enumerate(news.new_token_ids):
            self._token_ids.append(token)
            if self._logprobs is not None and logprobs is not None:
                self._logprobs.append(_row(logprobs, i, self._tokenizer))
                self._cumulative += float(logprobs.logprobs[i, 0])
            if self._waits:
                self._num_without_text = int(i == hidden)
            elif detokenizer is not None and i != hidden:
                self._append(detokenizer.add(token))
            if self.finish_reason is not None:
                return True
        return False

    def _hidden_end(self, news: RequestOutput) -> int:
        """Position of the token that ended the answer and has no text; -1 if there is none."""
        is_hidden = news.finish_reason is FinishReason.STOP and not self._params.include_stop_str_in_output
        return len(news.new_token_ids) - 1 if is_hidden else -1

    def _append(self, piece: str) -> None:
        self._text += piece
        if self._stops is _NO_STOPS or not piece or len(self._token_ids) <= self._params.min_tokens:
            return
        found = self._stops.find(self._text, len(piece))
        if found is not None:
            self._text, self.stop_reason = found
            self.finish_reason = str(FinishReason.STOP)

    # ---- what goes out to callers

    def whole(self) -> CompletionOutput:
        """All of it; of an unfinished answer, without what may begin a stop string."""
        return self._output(self._text[: self._num_certain], 0)

    def news(self) -> CompletionOutput | None:
        """The output that was not sent yet; None if there is none."""
        told, told_tokens = self._num_told_chars, self._num_told_tokens
        certain = self._num_certain if self._held_back else len(self._text)
        ended, self._num_told_tokens = self.finish_reason is not None, len(self._token_ids)
        if certain > told:
            self._num_told_chars = certain
        elif self._num_told_tokens == told_tokens and ended is self._end_told:
            return None
        self._end_told = ended
        return self._output(self._text[told:certain], told_tokens)

    @property
    def _num_certain(self) -> int:
        if self._held_back and self.finish_reason is None:
            return max(0, len(self._text) - self._held_back)
        return len(self._text)

    def _output(self, text: str, start: int) -> CompletionOutput:
        ids, reason, stop_reason, logprobs = (
            self._token_ids[start:],
            self.finish_reason,
            self.stop_reason,
            self._logprobs,
        )
        if logprobs is None:  # made for every token of a stream: what is not given costs nothing
            return CompletionOutput(
                index=self.index, text=text, token_ids=ids, finish_reason=reason, stop_reason=stop_reason
            )
        return CompletionOutput(
            index=self.index,
            text=text,
            token_ids=ids,
            cumulative_logprob=self._cumulative,
            logprobs=logprobs[start:],
            finish_reason=reason,
            stop_reason=stop_reason,
        )


def logprobs_of(rows: TokenLogprobs, tokenizer: TextTokenizer | None) -> list[dict[int, Logprob]]:
    """A record per position."""
    return [_row(rows, i, tokenizer) for i in range(len(rows.token_ids))]


def _row(rows: TokenLogprobs, i: int, tokenizer: TextTokenizer | None) -> dict[int, Logprob]:
    """The token itself, then the likeliest; the token itself may be one of them."""
    ids: Sequence[int] = rows.token_ids[i].tolist()
    values: Sequence[float] = rows.logprobs[i].tolist()
    ranks = [int(rows.ranks[i]), *range(1, len(ids))]
    found: dict[int, Logprob] = {}
    for token, value, rank in zip(ids, values, ranks, strict=True):
        if token not in found:
            text = "" if tokenizer is None else tokenizer.token_text(token)
            found[token] = Logprob(value, rank, text)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# From what a step brings to what callers are notified: generations by name, their samples, their texts.


_DELTA, _AT_END = OutputKind.DELTA, OutputKind.FINAL_ONLY


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
        """Why there are no more outputs, where neither the client nor the parameters ended them."""
        self.told: Callable[[], None] | None = None
        """Called when there is an output that its caller has not got yet; None: no caller waits for it."""
        self._kind = params.output_kind
        self.tells_all = params.output_kind is not _AT_END
        """Its caller is notified of what every step brings; else when it has ended."""
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
                    meta={"n": params.n, "index": index} if params.n > 1 else None,
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
        """No more outputs follow what can be sent now."""
        if self.error is None:
            for sample in self.samples:  # asked for every token: all() costs thrice as much
                if sample.finish_reason is None:
                    return False
        return True

    @property
    def unfinished_ids(self) -> list[str]:
        """Requests that the scheduler still has, as far as is known here."""
        return [sample.request.request_id for sample in self.samples if not sample.is_finished]

    def add_prompt_logprobs(self, sample: Sample, news: RequestOutput) -> None:
        """Add the log-probabilities of the first sample's prompt; computed twice, as after a preemption, they count
        once.
        """
        rows = news.extras.prompt_logprobs
        if sample.index == 0 and rows is not None:
            room = len(self.prompt_token_ids) - len(self._prompt_logprobs)
            self._prompt_logprobs += logprobs_of(rows, self._tokenizer)[:room]

    def embedding(self) -> EmbeddingOutput:
        """The vector, once it has ended. Raises RequestError if it ended without."""
        (sample,) = self.samples
        if sample.embedding is None:
            raise RequestError(self.request_id, "finish_reason", sample.finish_reason, "it has no vector: retry")
        return EmbeddingOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            embedding=sample.embedding,
            num_cached_tokens=max(0, sample.request.num_cached_tokens),
        )

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that were in the prefix cache."""
        return max(0, self.samples[0].request.num_cached_tokens)

    def news(self) -> Sequence[CompletionOutput] | None:
        """What a caller is notified of the answers now, as ``params.output_kind`` says; None: nothing."""
        kind = self._kind
        if kind is _DELTA:
            told = []
            for sample in self.samples:
                news = sample.news()
                if news is not None:
                    told.append(news)
            return told or None
        if kind is _AT_END and not self.is_finished:
            return None
        return [sample.whole() for sample in self.samples]

    def output(self, news: Sequence[CompletionOutput]) -> GenerationOutput:
        """The same with what it belongs to."""
        complete = self.params.prompt_logprobs is not None and len(self._prompt_logprobs) == len(self.prompt_token_ids)
        return GenerationOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            outputs=news,
            finished=self.is_finished,
            num_cached_tokens=self.num_cached_tokens,
            prompt_logprobs=self._prompt_logprobs if complete else None,
            kv_transfer_params=self.samples[0].kv_transfer_params,
        )


class Changes(msgspec.Struct, frozen=True):
    """What a step has changed."""

    generations: list[Generation]
    """Generations whose callers are to be notified, once for each of its samples."""
    to_abort: list[str]
    """Requests that have ended by a stop string: the scheduler has to abort them."""


class OutputProcessor:
    """The generations that have not ended. Belongs to one thread."""

    def __init__(self) -> None:
        self._generations: dict[str, Generation] = {}
        self._samples: dict[str, tuple[Generation, Sample]] = {}
        """The samples by the id of the scheduler's request."""
        self._kept: set[str] = set()
        """Requests whose tokens are not looked at before they end."""

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
        """Generations that have not ended."""
        return list(self._generations.values())

    def add(self, generation: Generation) -> None:
        """Expect its outputs."""
        assert generation.request_id not in self._generations, "a generation is added once"
        self._generations[generation.request_id] = generation
        for sample in generation.samples:
            self._samples[sample.request.request_id] = generation, sample
            if sample.is_kept:
                self._kept.add(sample.request.request_id)

    def process(self, outputs: EngineOutputs) -> Changes:
        """Take in what a step brought.

        News of a request that was forgotten is ignored, also where another request has its id now.
        """
        changed: list[Generation] = []
        ended: list[Generation] = []
        to_abort, samples = [], self._samples
        for request, news in outputs.records(self._kept):
            known = samples.get(news.request_id)
            if known is None or known[1].request is not request:
                continue
            generation, sample = known
            if news.extras is not NO_AUX_OUTPUT:
                generation.add_prompt_logprobs(sample, news)
            if sample.add(news):
                to_abort.append(news.request_id)
            if sample.finish_reason is not None:
                ended.append(generation)
            changed.append(generation)
        self._forget_finished(ended)
        return Changes([each for each in changed if each.tells_all or each.is_finished], to_abort)

    def refuse(self, request_id: str, error: BaseException) -> tuple[Generation, list[str]] | None:
        """A request of the scheduler's was refused, and so is its generation; with its other requests, to abort."""
        known = self._samples.get(request_id)
        return None if known is None else (known[0], self.fail(known[0], error))

    def abort(self, request_ids: Iterable[str]) -> list[Generation]:
        """The engine has ended these requests of its own accord; the generations that are over with them."""
        changed = {}
        for request_id in request_ids:
            known = self._samples.get(request_id)
            if known is not None:
                generation, sample = known
                sample.end(FinishReason.ABORT)
                changed[generation.request_id] = generation
        self._forget_finished(changed.values())
        return list(changed.values())

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
                self._kept.discard(sample.request.request_id)

    def _forget_finished(self, generations: Iterable[Generation]) -> None:
        for each in generations:
            if each.is_finished:
                self.forget(each)
