"""Where a request is in its life, and what its client is told at the end."""

from __future__ import annotations

from enum import IntEnum, StrEnum

__all__ = ["FinishReason", "RequestStatus"]


class RequestStatus(IntEnum):
    """Where a request is in its life; everything after PREEMPTED is finished."""

    WAITING = 1
    WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR = 2
    WAITING_FOR_REMOTE_KVS = 3
    WAITING_FOR_STREAMING_REQ = 4
    RUNNING = 5
    PREEMPTED = 6
    FINISHED_STOPPED = 7
    FINISHED_LENGTH_CAPPED = 8
    FINISHED_ABORTED = 9
    FINISHED_IGNORED = 10
    FINISHED_ERROR = 11
    FINISHED_REPETITION = 12

    @property
    def is_finished(self) -> bool:
        return self > RequestStatus.PREEMPTED

    @property
    def is_blocked(self) -> bool:
        """Waiting for something other than its turn."""
        return self in _BLOCKED


_BLOCKED = frozenset(
    (
        RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR,
        RequestStatus.WAITING_FOR_REMOTE_KVS,
        RequestStatus.WAITING_FOR_STREAMING_REQ,
    )
)


class FinishReason(StrEnum):
    """What the client is told (the OpenAI words, as vLLM uses them)."""

    STOP = "stop"
    """The model ended it: end-of-sequence token, or a stop token."""
    LENGTH = "length"
    """It reached ``max_tokens`` or ``max_model_len``."""
    ABORT = "abort"
    """The client left, or the engine was paused."""
    ERROR = "error"
    """The engine could not go on with it."""
    REPETITION = "repetition"
    """Its output repeated itself."""

    @staticmethod
    def of(status: RequestStatus) -> FinishReason | None:
        """The reason that belongs to a finished status, or None."""
        return _FINISH_REASONS.get(status)


_FINISH_REASONS = {
    RequestStatus.FINISHED_STOPPED: FinishReason.STOP,
    RequestStatus.FINISHED_LENGTH_CAPPED: FinishReason.LENGTH,
    RequestStatus.FINISHED_ABORTED: FinishReason.ABORT,
    RequestStatus.FINISHED_IGNORED: FinishReason.LENGTH,
    RequestStatus.FINISHED_ERROR: FinishReason.ERROR,
    RequestStatus.FINISHED_REPETITION: FinishReason.REPETITION,
}
