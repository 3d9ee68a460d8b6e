"""What passes through a step beside tokens: poolers' results, routed experts, NaNs, events.

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

__all__ = ["NO_AUX", "NO_AUX_OUTPUT", "ExpertIds", "ModelAuxOutput", "RequestAuxOutput", "with_events"]

ExpertIds = npt.NDArray[np.integer]
"""Experts that tokens were routed to, shape ``[tokens, layers, experts per token]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAuxOutput:
    """What a model returns for a step beside tokens."""

    pooler_output: Sequence[object | None] = ()
    """One result per scheduled request, None where its prompt is not complete; empty without pooling requests."""
    routed_experts: ExpertIds | None = None
    """Of all tokens that the step computed, in scheduling order."""
    num_nans_in_logits: Mapping[str, int] = field(default_factory=dict)
    """Request id -> NaNs, where there were any: its output is corrupt."""
    failed: Set[str] = frozenset()
    """Ids of scheduled requests that the workers have lost: they end as errors, whatever their rows hold."""


class RequestAuxOutput(NamedTuple):
    """What a client is told about one request beside its tokens."""

    pooling_output: object | None = None
    routed_experts: ExpertIds | None = None
    num_nans_in_logits: int = 0
    events: tuple[RequestEvent, ...] = ()
    """What has happened to it since it was last told."""


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
