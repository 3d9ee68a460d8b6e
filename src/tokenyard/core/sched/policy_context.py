"""What a policy, and an order of eviction, may know of their scheduler."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tokenyard.core.sched.features.sessions import PinBoard
from tokenyard.core.sched.observer import SchedulerState


class PolicyContext(msgspec.Struct, frozen=True):
    """What a policy may know of its scheduler, for good."""

    pins: PinBoard
    """Blocks of finished turns that the policy keeps."""
    kv_tokens: int
    """Tokens that the whole KV cache holds (fewer if it has several groups)."""
    state: SchedulerState
    """What observers see, too: who runs and waits, blocks that are free; not to be changed."""
    prefill_seconds: Callable[[int], float] | None = None
    """How long a prompt of so many tokens takes to compute, where the host knows."""
    load_seconds: Callable[[int], float] | None = None
    """How long the KV of so many tokens takes from the tier of a connector, where there is one and the host knows."""
