"""Plans of steps are values: what was true of one when it was made stays true."""

from __future__ import annotations

import copy
import pickle
from collections import deque
from typing import NamedTuple

from tokenyard.core.sched.scheduler_output import SchedulerOutput

__all__ = ["KeptPlans", "contents"]


def contents(plan: SchedulerOutput) -> bytes:
    """All that a plan says, but for what a connector of the tests puts into it."""
    return plan.replace(kv_connector_metadata=None).encode()


class _Kept(NamedTuple):
    plan: SchedulerOutput
    said: bytes
    copied: SchedulerOutput


class KeptPlans:
    """The last plans, with copies from the moment at which they were made."""

    def __init__(self, most: int = 6) -> None:
        self._kept: deque[_Kept] = deque(maxlen=most)
        self.num_kept = 0

    def keep(self, plan: SchedulerOutput) -> None:
        """A step has just been scheduled."""
        said = contents(plan)
        bare = plan.replace(kv_connector_metadata=None)
        assert contents(pickle.loads(pickle.dumps(bare))) == said, "pickling changes a plan"
        self._kept.append(_Kept(plan, said, copy.deepcopy(bare)))
        self.num_kept += 1

    def check(self) -> None:
        """Fail if one of them says something else by now, or its records do."""
        for plan, said, copied in self._kept:
            assert contents(plan) == said, f"step {plan.step} has changed"
            assert plan.num_scheduled_tokens == copied.num_scheduled_tokens
            assert plan.scheduled_cached_reqs == copied.scheduled_cached_reqs
            assert plan.scheduled_spec_decode_tokens == copied.scheduled_spec_decode_tokens
            ours, theirs = ([new[:2] + new[5:8] for new in each.scheduled_new_reqs] for each in (plan, copied))
            assert ours == theirs
