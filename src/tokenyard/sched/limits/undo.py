"""An admission that is called off: a limit, or who was asked in it, raised when memory may have been taken already."""

from __future__ import annotations

from tokenyard.kv.manager import KVCacheManager
from tokenyard.sched.features.features import Features
from tokenyard.sched.limits.candidate import Candidate
from tokenyard.sched.passes.budget import StepBudget

__all__ = ["AdmissionUndo"]


class AdmissionUndo:
    """Takes back what the limits may have done for a candidate; it waits as before, and is asked about again."""

    def __init__(self, kv: KVCacheManager, features: Features) -> None:
        self._kv = kv
        self.failures = kv.failures
        self._encoder = features.encoder

    def undo(self, candidate: Candidate, budget: StepBudget, *, had_blocks: bool) -> None:
        """``had_blocks``: the request came with blocks, which it keeps if any of its tokens are in them."""
        request = candidate.request
        had_blocks = had_blocks and (request.num_computed_tokens > 0 or request.resumable)
        if self._encoder is not None:
            self._encoder.roll_back(request, budget, ())
            self._encoder.cache.free(request)
        num_valid = request.num_computed_tokens + candidate.num_local_hit_tokens
        self._kv.undo_admission(request, num_valid, had_blocks=had_blocks)
