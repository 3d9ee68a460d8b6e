"""What goes wrong at the workers: external KV that failed to load, and requests that were lost."""

from __future__ import annotations

from tokenyard.config import SchedulerConfig
from tokenyard.kv.manager import KVCacheManager
from tokenyard.request import Request, RequestStatus
from tokenyard.sched.features.features import Features
from tokenyard.sched.features.transfers import Transfers
from tokenyard.sched.queues.running import RunningList
from tokenyard.sched.queues.waiting import WaitingQueues
from tokenyard.sched.steps.aux_output import ModelAuxOutput
from tokenyard.sched.steps.in_flight import StepInFlight
from tokenyard.sched.steps.model_output import ConnectorOutput
from tokenyard.sched.update.lifecycle import Lifecycle

__all__ = ["Recovery", "failed_requests"]


def failed_requests(step: StepInFlight, extras: ModelAuxOutput) -> list[Request]:
    """Scheduled requests that the workers have lost and that have not ended meanwhile."""
    if not extras.failed:
        return []
    return [each for each in step.requests if each.request_id in extras.failed and not each.status.is_finished]


class Recovery:
    """Rewinds requests whose external KV failed to load."""

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        running: RunningList,
        room: WaitingQueues,
        endings: Lifecycle,
        transfers: Transfers,
        *,
        is_async: bool,
    ) -> None:
        self._fails = config.kv_load_failure_policy == "fail"
        self._kv = kv
        self._running = running
        self._waiting_queues = room
        self._lifecycle = endings
        self._transfers = transfers
        self._is_async = is_async

    @classmethod
    def of(
        cls,
        config: SchedulerConfig,
        kv: KVCacheManager,
        running: RunningList,
        room: WaitingQueues,
        lifecycle: Lifecycle,
        features: Features,
    ) -> Recovery | None:
        """One for a scheduler with a connector; others have nothing to lose."""
        if features.transfers is None:
            return None
        is_async = features.placeholders is not None
        return cls(config, kv, running, room, lifecycle, features.transfers, is_async=is_async)

    def lost(self, step: StepInFlight, report: ConnectorOutput | None, now: float) -> list[Request]:
        """Requests whose output in this step is void, because their KV was not there."""
        transfers = self._transfers
        transfers.forget_doubtful(step, report)
        if report is None or not report.invalid_block_ids:
            return []
        running = self._running.requests
        loading = [each for each in self._waiting_queues.skipped if each.status is RequestStatus.WAITING_FOR_REMOTE_KVS]
        lost = transfers.invalidate(report.invalid_block_ids, loading, running, step.plan.num_scheduled_tokens)
        self._kv.evict_blocks(lost.blocks)
        if self._fails:
            return sorted({*lost.loading, *lost.rewound, *lost.sharing}, key=lambda request: request.request_id)
        if not self._is_async:
            for request in lost.rewound:
                self._kv.publish_again(request)
            self._lifecycle.start_over(lost.sharing, now)
            return [*lost.rewound, *lost.sharing]
        self._lifecycle.start_over([*lost.rewound, *lost.sharing], now)  # their steps in flight build on what was lost
        return []
