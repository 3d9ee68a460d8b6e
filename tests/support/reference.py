"""What must come of sampled tokens, written a second time and as plainly as possible."""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.request import FinishReason, Request
from tokenyard.sched.output import RequestOutput

__all__ = ["Ledger"]


class Ledger:
    """One request's tokens as its client must see them."""

    def __init__(self, request: Request, max_model_len: int) -> None:
        self.request = request
        self.prompt = request.prompt_token_ids
        self.output: list[int] = []
        self.limit = min(request.max_tokens, max_model_len - len(self.prompt))
        """Most output tokens."""
        self.num_resets = 0
        """How often all its work in flight became worthless."""
        self.ended = False

    @property
    def stream(self) -> list[int]:
        return [*self.prompt, *self.output]

    def accept(self, sampled: Sequence[int]) -> RequestOutput:
        """Append tokens up to the first that ends the request."""
        params, taken = self.request.sampling_params, list[int]()
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
        return RequestOutput(self.request.request_id, taken, None, None)

    def _end(self, taken: list[int], reason: FinishReason, stop: int | None) -> RequestOutput:
        self.ended = True
        return RequestOutput(self.request.request_id, taken, reason, stop)
