"""What must come of sampled tokens, written a second time and as plainly as possible."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tokenyard.core.params import RepetitionDetectionParams, SamplingParams
from tokenyard.core.request import FinishReason, Request
from tokenyard.core.sched.outputs import RequestOutput

__all__ = ["Ledger", "SessionPiece"]


class SessionPiece(NamedTuple):
    """Further input for a session."""

    tokens: list[int]
    params: SamplingParams


class Ledger:
    """One request's tokens as its client must see them."""

    def __init__(self, request: Request, max_model_len: int) -> None:
        self.request = request
        self.params = request.sampling_params
        self.max_model_len = max_model_len
        self.prompt = request.prompt_token_ids
        self.output: list[int] = []
        self.limit = min(request.max_tokens, max_model_len - len(self.prompt))
        """Most output tokens."""
        self.num_resets = 0
        """How often all its work in flight became worthless."""
        self.ended = False
        self.forbids: frozenset[int] = frozenset()
        """Tokens that its grammar does not allow."""
        self.pieces: deque[SessionPiece | None] = deque()
        """Input of a session that has come and not been used; None ends it."""
        self.awaits_input = False

    @property
    def stream(self) -> list[int]:
        return [*self.prompt, *self.output]

    def accept(self, sampled: Sequence[int]) -> RequestOutput:
        """Append tokens up to the first that ends the request; a session may go on then."""
        news = self._accept(sampled)
        if self.ended and self.request.resumable and news.finish_reason is not FinishReason.ERROR:
            self._next_piece()
        return news

    def feed(self, piece: SessionPiece | None) -> None:
        """A session gets further input."""
        self.pieces.append(piece)
        if self.awaits_input:
            self._next_piece()

    def _next_piece(self) -> None:
        self.ended, self.awaits_input = False, not self.pieces
        self.num_resets += 1
        if self.pieces:
            piece = self.pieces.popleft()
            if piece is None:
                self.ended = True
                return
            # The last sampled token was never computed: it is dropped.
            self.prompt, self.output = [*self.stream[:-1], *piece.tokens], []
            self.params = piece.params
            self.limit = min(piece.params.max_tokens, self.max_model_len - len(self.prompt))

    def _accept(self, sampled: Sequence[int]) -> RequestOutput:
        params, taken = self.params, list[int]()
        for token in sampled:
            taken.append(token)
            self.output.append(token)
            if len(self.output) < params.min_tokens:
                continue
            if token == params.eos_token_id and not params.ignore_eos:
                return self._end(taken, FinishReason.STOP, None)
            if token in params.stop_token_ids:
                return self._end(taken, FinishReason.STOP, token)
            if len(self.output) == self.limit:
                return self._end(taken, FinishReason.LENGTH, None)
            if params.repetition_detection is not None and self._goes_in_circles(params.repetition_detection):
                return self._end(taken, FinishReason.REPETITION, "repetition_detected")
        if not self.forbids.isdisjoint(taken):
            return self._end(taken, FinishReason.ERROR, None)
        return RequestOutput(self.request.request_id, taken, None, None)

    def _goes_in_circles(self, params: RepetitionDetectionParams) -> bool:
        for size in range(max(params.min_pattern_size, 1), params.max_pattern_size + 1):
            tail = self.output[-size * params.min_count :]
            if len(tail) == size * params.min_count and tail == tail[:size] * params.min_count:
                return True
        return False

    def _end(self, taken: list[int], reason: FinishReason, stop: int | str | None) -> RequestOutput:
        if not self.forbids.isdisjoint(taken):
            reason = FinishReason.ERROR
        self.ended = True
        return RequestOutput(self.request.request_id, taken, reason, stop)
