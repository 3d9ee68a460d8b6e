"""What passes through a step beside tokens: log-probabilities, poolers' results, routed experts, NaNs, events.

Most steps carry none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenyard.request import Request
from tokenyard.sched.features.request_events import RequestEvent, RequestEvents

__all__ = [
    "NO_AUX",
    "NO_AUX_OUTPUT",
    "ExpertIds",
    "ModelAuxOutput",
    "RequestAuxOutput",
    "TokenLogprobs",
    "with_events",
]

ExpertIds = npt.NDArray[np.integer]
"""Experts that tokens were routed to, shape ``[tokens, layers, experts per token]``."""


class TokenLogprobs(NamedTuple):
    """Log-probabilities at consecutive positions: of the token that stands there, then of the likeliest ones.

    They are the model's own: before temperature, penalties and what cuts the tail off.
    """

    token_ids: npt.NDArray[np.int64]
    """Shape ``[positions, 1 + k]``: the token, then the ``k`` likeliest, likeliest first."""
    logprobs: npt.NDArray[np.float64]
    """Natural logarithms, of the same shape."""
    ranks: npt.NDArray[np.int64]
    """Of the token that stands there, shape ``[positions]``: 1 for the likeliest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAuxOutput:
    """What a model returns for a step beside tokens."""

    pooler_output: Sequence[object | None] = ()
    """One result per scheduled request, None where its prompt is not complete; empty without pooling requests."""
    routed_experts: ExpertIds | None = None
    """Of all tokens that the step computed, in scheduling order."""
    num_nans_in_logits: Mapping[str, int] = field(default_factory=dict)
    """Request id -> NaNs, where there were any: its output is corrupt."""
    logprobs: Mapping[int, TokenLogprobs] = field(default_factory=dict)
    """Row -> of its sampled tokens, where ``SamplingParams.logprobs`` asks for them."""
    prompt_logprobs: Mapping[int, TokenLogprobs] = field(default_factory=dict)
    """Row -> of its whole prompt but the first token, in the step that completes the prompt."""
    failed: Set[str] = frozenset()
    """Ids of scheduled requests that the workers have lost: they end as errors, whatever their rows hold."""


class RequestAuxOutput(NamedTuple):
    """What a client is told about one request beside its tokens."""

    pooling_output: object | None = None
    routed_experts: ExpertIds | None = None
    num_nans_in_logits: int = 0
    events: tuple[RequestEvent, ...] = ()
    """What has happened to it since it was last told."""
    logprobs: TokenLogprobs | None = None
    """Of the new tokens, one position each; None unless ``SamplingParams.logprobs`` asks for them."""
    prompt_logprobs: TokenLogprobs | None = None
    """Of the prompt from its second token on, once; None unless ``SamplingParams.prompt_logprobs`` asks for them."""


NO_AUX_OUTPUT = RequestAuxOutput()
"""Of nearly every output."""

NO_AUX: Mapping[int, RequestAuxOutput] = MappingProxyType({})
"""Of nearly every step."""


def with_events(
    requests: Sequence[Request], extras: Mapping[int, RequestAuxOutput], events: RequestEvents
) -> Mapping[int, RequestAuxOutput]:
    """``extras`` and what has happened to the rows' requests since they were last told of."""
    if not len(events):
        return extras
    told = {row: happened for row, request in enumerate(requests) if (happened := events.take(request))}
    return {**extras, **{row: extras.get(row, NO_AUX_OUTPUT)._replace(events=each) for row, each in told.items()}}
