"""What each of several engines had of a run."""

from __future__ import annotations

import msgspec

from tokenyard.explain.report.percentiles import LatencyFigures

__all__ = ["RankShare"]


class RankShare(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's part; None where its trace does not tell."""

    rank: int
    requests: int | None
    """Sent to it, refused ones aside."""
    requests_share: float | None
    """Of all requests, from 0 to 1."""
    requests_finished: int | None
    output_tokens: int | None
    output_tokens_share: float | None
    """Of all tokens sampled, from 0 to 1."""
    steps: int
    dummy_batches: int | None
    """Steps in which it only kept step with the others; 0 where each steps alone, None of a trace."""
    busy_share: float | None
    """Time in steps with requests, as a share of the run."""
    preemptions: int | None
    prefix_hit_rate: float | None
    """Of its prompt tokens."""
    peak_kv_use: float | None
    waiting_mean: float | None
    """Waiting requests per step."""
    ttft_ms: LatencyFigures
    tpot_ms: LatencyFigures
    source: str | None
    """Its trace, if one was written."""
