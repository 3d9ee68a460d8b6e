"""Tokenyard's engine, through ``LLM``; and the scheduler's share of the steps in which all seats are taken."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from engine_sides.serving import serve, setup
from tokenyard import SamplingParams
from tokenyard.serve import LLM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["StepClock", "main"]


class StepClock:
    """Wall time of ``schedule()`` and ``update_from_output()``, and from one ``schedule()`` to the next."""

    def __init__(self, scheduler: Any, seats: int) -> None:
        self._scheduler, self._seats = scheduler, seats
        self._begun: float | None = None
        """When the last step was scheduled, if all seats were taken then."""
        self.start()
        scheduler.schedule = self._timed(scheduler.schedule, self._mark)
        scheduler.update_from_output = self._timed(scheduler.update_from_output, lambda _: None)

    def start(self) -> None:
        """Forget what was measured."""
        self._begun, self._pending = None, 0.0
        self.scheduler_seconds = self.step_seconds = 0.0
        self.num_steps = 0

    def _timed(self, call: Callable[..., Any], mark: Callable[[float], None]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            begun = time.perf_counter()
            mark(begun)
            try:
                return call(*args)
            finally:
                self._pending += time.perf_counter() - begun

        return timed

    def _mark(self, now: float) -> None:
        """A step is about to be scheduled: what came before belongs to the one that was scheduled last."""
        if self._begun is not None:
            self.step_seconds += now - self._begun
            self.scheduler_seconds += self._pending
            self.num_steps += 1
        self._begun = now if len(self._scheduler.running) == self._seats else None
        self._pending = 0.0


def main() -> None:
    """Serve."""
    options = setup()
    torch.set_num_threads(options.threads)
    llm = LLM(
        options.model,
        dtype=options.dtype,
        device="cpu",
        max_model_len=options.max_model_len,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        block_size=options.block_size,
        num_gpu_blocks_override=options.num_blocks,
        enable_prefix_caching=False,
    )
    clock = StepClock(llm.core.scheduler, options.max_num_seqs)

    def generate(prompts: Sequence[list[int]], max_tokens: Sequence[int]) -> list[list[int]]:
        clock.start()
        params = [SamplingParams(max_tokens=each, temperature=0, ignore_eos=True) for each in max_tokens]
        outputs = llm.generate(list(prompts), params)
        return [list(each.outputs[0].token_ids) for each in outputs]

    def facts() -> dict[str, Any]:
        return {
            "full_steps": clock.num_steps,
            "step_seconds": clock.step_seconds,
            "scheduler_seconds": clock.scheduler_seconds,
        }

    serve(generate, facts)
    llm.shutdown()


if __name__ == "__main__":
    main()
