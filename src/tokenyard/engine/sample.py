"""One answer while it grows: tokens, text, log-probabilities, and why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenyard.engine.generation import GenerationParams
from tokenyard.engine.outputs import CompletionOutput, Logprob
from tokenyard.engine.text.detokenizer import Detokenizer
from tokenyard.engine.text.stop_strings import StopStrings
from tokenyard.engine.text.tokenizer import TextTokenizer
from tokenyard.request import FinishReason, Request
from tokenyard.sched.steps.aux_output import TokenLogprobs
from tokenyard.sched.steps.engine_outputs import RequestOutput

__all__ = ["Sample", "logprobs_of"]


class Sample:
    """Of one request to the scheduler. Without a tokenizer it has no text."""

    def __init__(self, index: int, request: Request, params: GenerationParams, tokenizer: TextTokenizer | None) -> None:
        self.index = index
        self.request = request
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.embedding: Any = None
        """The prompt's vector, where that was asked for in place of tokens."""
        self._params = params
        self._tokenizer = tokenizer
        self._text = ""
        self._token_ids: list[int] = []
        self._logprobs: list[dict[int, Logprob]] | None = None if params.logprobs is None else []
        self._cumulative = 0.0
        self._stops = StopStrings(params.stop, include=params.include_stop_str_in_output)
        self._detokenizer: Detokenizer | None = None
        if tokenizer is not None:
            prompt = request.prompt_token_ids
            self._detokenizer = Detokenizer(tokenizer, prompt, skip_special_tokens=params.skip_special_tokens)
        self._num_told_chars = self._num_told_tokens = 0
        self._end_told = False

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def num_tokens(self) -> int:
        """Output tokens so far."""
        return len(self._token_ids)

    def add(self, news: RequestOutput) -> bool:
        """Take in what a step brought; True if a stop string ended it, which the scheduler does not know."""
        if self.is_finished:
            return False
        if news.extras.pooling_output is not None:
            self.embedding = news.extras.pooling_output
        stopped = self._add_tokens(news)
        if not stopped and news.finish_reason is not None:
            self.end(news.finish_reason, news.stop_reason)
        return stopped and news.finish_reason is None

    def end(self, reason: str, stop_reason: int | str | None = None) -> None:
        """End it; what was held back of its text is given out, unless that completes a stop string."""
        if self._detokenizer is not None:
            self._append(self._detokenizer.flush())
        if not self.is_finished or reason in (FinishReason.ABORT, FinishReason.ERROR):
            self.finish_reason, self.stop_reason = str(reason), stop_reason

    def _add_tokens(self, news: RequestOutput) -> bool:
        """True if a stop string was found; tokens after the one that completed it are dropped."""
        hidden = self._hidden_end(news)
        logprobs = news.extras.logprobs
        for i, token in enumerate(news.new_token_ids):
            self._token_ids.append(token)
            if self._logprobs is not None and logprobs is not None:
                self._logprobs.append(_row(logprobs, i, self._tokenizer))
                self._cumulative += float(logprobs.logprobs[i, 0])
            if self._detokenizer is not None and i != hidden:
                self._append(self._detokenizer.add(token))
            if self.is_finished:
                return True
        return False

    def _hidden_end(self, news: RequestOutput) -> int:
        """Position of the token that ended the answer and has no text; -1 if there is none."""
        is_hidden = news.finish_reason is FinishReason.STOP and not self._params.include_stop_str_in_output
        return len(news.new_token_ids) - 1 if is_hidden else -1

    def _append(self, piece: str) -> None:
        if not piece:
            return
        self._text += piece
        if len(self._token_ids) <= self._params.min_tokens:
            return
        found = self._stops.find(self._text, len(piece))
        if found is not None:
            self._text, self.stop_reason = found
            self.finish_reason = str(FinishReason.STOP)

    # ---- what others are told

    def whole(self) -> CompletionOutput:
        """All of it; of an unfinished answer, without what may begin a stop string."""
        return self._output(self._text[: self._num_certain], 0)

    def news(self) -> CompletionOutput | None:
        """What nobody was told yet; None if that is nothing."""
        certain = self._num_certain
        ended = self.is_finished and not self._end_told
        if certain <= self._num_told_chars and len(self._token_ids) == self._num_told_tokens and not ended:
            return None
        output = self._output(self._text[self._num_told_chars : certain], self._num_told_tokens)
        self._num_told_chars, self._num_told_tokens = max(certain, self._num_told_chars), len(self._token_ids)
        self._end_told = self.is_finished
        return output

    @property
    def _num_certain(self) -> int:
        return len(self._text) if self.is_finished else max(0, len(self._text) - self._stops.held_back())

    def _output(self, text: str, start: int) -> CompletionOutput:
        return CompletionOutput(
            index=self.index,
            text=text,
            token_ids=self._token_ids[start:],
            cumulative_logprob=None if self._logprobs is None else self._cumulative,
            logprobs=None if self._logprobs is None else self._logprobs[start:],
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
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
