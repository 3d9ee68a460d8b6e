"""vLLM's own scheduler, traced: ``--scheduler-cls tokenyard.vllm.TracingScheduler``."""

from __future__ import annotations

import logging
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from tokenyard.vllm.tracing.tracer import Tracer
from tokenyard.vllm.versions import Twins, check_version, trace_settings, warn_no_trace
from tokenyard.vocabulary import Reason

_log = logging.getLogger("tokenyard.vllm")


class TracingScheduler(Twins, Scheduler):  # type: ignore[misc]
    """Decides as vLLM's scheduler, and writes what it decides to the directory of ``SCHED_TRACE_PATH``.

    Without that variable it is vLLM's scheduler and nothing else.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tracer: Tracer | None = None
        self._takes_in = False
        """An output is being taken in."""
        check_version()
        settings = trace_settings(self.vllm_config, self._trace_policy())
        if settings.enabled:
            self._begin_trace(settings)

    @property
    def tracer(self) -> Tracer | None:
        """What watches it; None if no trace was requested, or none could be written."""
        return self._tracer

    def _trace_policy(self) -> str:
        """Name of the policy, for the records and the files of the trace."""
        return str(self.scheduler_config.policy)

    def _begin_trace(self, settings: Any) -> None:
        try:
            tracer = Tracer(self, settings)
            tracer.claim()
        except Exception as error:  # noqa: BLE001 - a server without a trace is better than none
            warn_no_trace(settings, error)
            return
        self._tracer = tracer
        _log.info("a trace is written to %s", settings.steps_path)

    # ---- what vLLM calls

    def schedule(self, *args: Any, **options: Any) -> Any:
        tracer = self._tracer
        if tracer is None:
            return super().schedule(*args, **options)
        tracer.step_begins(throttled=bool(args[0] if args else options.get("throttle_prefills")))
        try:
            output = super().schedule(*args, **options)
        except BaseException:
            tracer.step_failed()
            raise
        tracer.step_decided(output)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        self._takes_in = True
        try:
            outputs = super().update_from_output(scheduler_output, model_runner_output)
        except BaseException:
            if self._tracer is not None:
                self._tracer.flush()
            raise
        self._takes_in = False
        if self._tracer is not None:
            self._tracer.output_taken(scheduler_output, outputs)
        return outputs

    def make_stats(self, *args: Any, **options: Any) -> Any:
        # A scheduler is not notified that a worker has failed; but then the engine asks for these, to log them, and is
        # killed before it would call shutdown().
        if self._tracer is not None and not self._takes_in:
            self._tracer.flush()
        return super().make_stats(*args, **options)

    def add_request(self, request: Any) -> None:
        super().add_request(request)
        if self._tracer is not None:
            self._tracer.request_added(request)

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        finished = super().finish_requests(request_ids, finished_status)
        if self._tracer is not None:
            self._tracer.requests_ended()
        return finished

    def _preempt_request(self, request: Any, *args: Any, **options: Any) -> None:
        if self._tracer is not None:
            self._tracer.preempting(request)
        super()._preempt_request(request, *args, **options)

    def _try_schedule_encoder_inputs(
        self, request: Any, num_computed_tokens: int, num_new_tokens: int, *args: Any, **options: Any
    ) -> Any:
        granted = super()._try_schedule_encoder_inputs(request, num_computed_tokens, num_new_tokens, *args, **options)
        if self._tracer is not None and num_new_tokens and not granted[1]:
            self._tracer.clipped(request, Reason.ENCODER_BUDGET)
        return granted

    def _mamba_block_aligned_split(self, request: Any, num_new_tokens: int, *args: Any, **options: Any) -> int:
        granted: int = super()._mamba_block_aligned_split(request, num_new_tokens, *args, **options)
        if self._tracer is not None and num_new_tokens and not granted:
            self._tracer.clipped(request, Reason.MAMBA_ALIGNMENT)
        return granted

    def reset_prefix_cache(self, *args: Any, **options: Any) -> Any:
        done = super().reset_prefix_cache(*args, **options)
        if self._tracer is not None:
            self._tracer.cache_reset("prefix", done=bool(done))
        return done

    def reset_encoder_cache(self) -> None:
        super().reset_encoder_cache()
        if self._tracer is not None:
            self._tracer.cache_reset("encoder", done=True)

    def set_pause_state(self, pause_state: Any) -> None:
        super().set_pause_state(pause_state)
        if self._tracer is not None:
            self._tracer.paused(pause_state)

    def shutdown(self) -> None:
        if self._tracer is not None:
            self._tracer.close()
        super().shutdown()


class AsyncTracingScheduler(TracingScheduler, AsyncScheduler):  # type: ignore[misc]
    """The same for an engine that schedules asynchronously."""


TracingScheduler.twins = AsyncTracingScheduler.twins = (TracingScheduler, AsyncTracingScheduler)
