"""How long a request is on its way between its client and the scheduler, as it was fitted to measured runs."""

from __future__ import annotations

import msgspec


class FrontEndTime(msgspec.Struct, frozen=True):
    """Seconds between client and scheduler, both ways: HTTP, tokenising the prompt, the first token's way back.

    It is part of what a client measures (``vllm bench serve``, InferenceX). Of vLLM's own
    ``vllm:time_to_first_token_seconds``, which begins when the front end stamps the arrival, only what comes after the
    stamp is.
    """

    request: float
    """Seconds of every request."""
    prompt_token: float
    """Seconds of each token of its prompt."""

    def seconds(self, prompt_tokens: float) -> float:
        """Seconds of a request with such a prompt."""
        return self.request + self.prompt_token * prompt_tokens

    def __str__(self) -> str:
        return f"{self.request * 1e3:.1f} ms, and {self.prompt_token * 1e6:.1f} us a prompt token"
