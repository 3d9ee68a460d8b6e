"""Schedulers of papers, to compare with: what each decides otherwise than vLLM, on the seams of a policy.

None of them is part of the promise of parity: they stand for a mechanism, not for the code of a system. What a paper's
engine does besides (kernels, swapping, its own step times) is not here; docs/tasks/baselines.md says what differs.

    orca         Yu et al., OSDI 2022           whole prompts, memory reserved up to max_tokens
    vllm-v0      Kwon et al., SOSP 2023         prompts first: no request decodes while one is computed
    sarathi      Agrawal et al., OSDI 2024      a step has a fixed number of tokens, decodes first
    fastserve    Wu et al., 2023                queues of several levels, a request sinks as it gets tokens
    noisy-sjf    after Fu et al., NeurIPS 2024  the shortest predicted answer first, predictions off by a factor
    vtc          Sheng et al., OSDI 2024        the client who was given least, output counted twice
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from random import Random

from tokenyard.arguments import is_number
from tokenyard.core.config import require_int
from tokenyard.core.request import Request
from tokenyard.core.sched.candidate import Refused, StepBounds
from tokenyard.core.sched.observer import SchedulerState
from tokenyard.core.sched.policy import AdmissionView, Policy
from tokenyard.core.sched.queues import WaitingQueues
from tokenyard.errors import ConfigError
from tokenyard.policies.fair import FairShare
from tokenyard.policies.simple import Key, KeyedPolicy


def decodes(request: Request) -> bool:
    """Whether the prompt of a request is computed."""
    return request.num_computed_tokens >= request.num_prompt_tokens


# ---------------------------------------------------------------------------------------------------------------------
# Orca: continuous batching as it began. A request enters once there is room for its longest possible answer, so none is
# ever preempted, and its prompt is computed whole in one step.


class Orca(Policy):
    """Whole prompts only, and blocks up to ``max_tokens`` are reserved when a request is admitted."""

    reads_tokens = False
    reads_max_tokens = True

    def admits(self, request: Request, view: AdmissionView) -> bool | Refused:
        if not view.running:
            return True
        size = self.context.state.block_size
        reserved = sum(-(-(each.num_prompt_tokens + each.max_tokens) // size) for each in (*view.running, request))
        if reserved >= view.total_blocks:
            return Refused("orca_reserve")
        whole = request.num_tokens - view.cached_tokens
        return view.new_tokens >= whole or Refused("whole_prompts")


# ---------------------------------------------------------------------------------------------------------------------
# vLLM before chunked prefill: a step is of prompts or of decodes. While a prompt waits that fits, those that decode
# stand still; that is where long gaps between tokens came from.


class PrefillFirst(Policy):
    """While prompts are being computed, or one waits that fits, no request decodes."""

    reads_tokens = False

    def __init__(self) -> None:
        self._held_for: str | None = None
        """The head of the queue for which the last step held decodes."""
        self._begun: dict[str, int] = {}
        """Prompts computed since a request decoded, and how often each had been preempted when it was begun."""

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds | None:
        state = self.context.state
        decoding = frozenset(each.request_id for each in state.running if decodes(each))
        if not decoding:
            return None
        prompts = {each.request_id: each.num_preemptions for each in state.running if not decodes(each)}
        head = self._head(queues, state, len(decoding))
        # No prompt is left, or what was expected of the head did not come true, or a prompt lacked memory that only
        # those that decode can let go: time for them.
        is_over = not prompts and (head is None or head == self._held_for)
        if is_over or any(self._begun.get(each, times) < times for each, times in prompts.items()):
            self._held_for = None
            self._begun.clear()
            return None
        self._held_for = head
        for each, times in prompts.items():
            self._begun.setdefault(each, times)
        return StepBounds(holds=decoding, detail="prefill_first")

    @staticmethod
    def _head(queues: WaitingQueues, state: SchedulerState, num_decoding: int) -> str | None:
        """The request that would be admitted next, if it looks as if it could be."""
        head = next(iter(queues), None)
        if head is None or head.status.is_blocked or len(state.running) >= state.max_num_running_reqs:
            return None
        fits = state.num_free_blocks > -(-head.num_tokens // state.block_size) + num_decoding
        return head.request_id if fits else None


# ---------------------------------------------------------------------------------------------------------------------
# Sarathi-Serve: every step has at most so many tokens; decodes take theirs, and a chunk of a prompt fills the rest.


class Sarathi(Policy):
    """A step has ``chunk`` tokens at most, decodes and the chunks of prompts together."""

    reads_tokens = False

    def __init__(self, chunk: int = 512) -> None:
        require_int("chunk", chunk, 1)
        self._chunk = chunk

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds:
        state = self.context.state
        decoding = sum(map(decodes, state.running))
        rest = max(self._chunk - decoding, 0 if decoding else 1)
        return StepBounds(prefill_tokens=rest, detail="sarathi_chunk")


# ---------------------------------------------------------------------------------------------------------------------
# FastServe: a multi-level feedback queue over iterations. A request begins at the level whose quantum its prompt fits
# (skip-join), sinks when it has had the level's quantum of tokens, and comes back up when it has waited for long.


class FastServe(Policy):
    """The ``batch`` requests of the highest levels get tokens; a request sinks as it gets them, and rises as it waits.

    ``quantum``: tokens of the highest level, twice as many in each one below. ``promote``: seconds without a token
    after which a request is on the highest level again.
    """

    reads_tokens = False

    def __init__(self, batch: int = 32, quantum: int = 64, levels: int = 6, promote: float = 10.0) -> None:
        for name, value in (("batch", batch), ("quantum", quantum), ("levels", levels)):
            require_int(name, value, 1)
        if not is_number(promote, above=True):
            raise ConfigError("promote", promote, "give a number of seconds above 0")
        self._batch, self._quantum, self._levels, self._promote = batch, quantum, levels, promote
        self._served: dict[str, tuple[float, int]] = {}
        """Running request -> when it last had a token, and the output tokens that do not count any more."""

    def level(self, request: Request) -> int:
        """0 is served first."""
        _, forgiven = self._served.get(request.request_id, (0.0, 0))
        had = request.num_output_tokens - forgiven + (0 if forgiven else request.num_prompt_tokens // 8)
        level, quantum = 0, self._quantum
        while had >= quantum and level < self._levels - 1:
            had, quantum, level = had - quantum, 2 * quantum, level + 1
        return level

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds | None:
        running = self.context.state.running
        self._served = {each.request_id: self._served.get(each.request_id, (now, 0)) for each in running}
        for each in running:
            since, _ = self._served[each.request_id]
            if now - since > self._promote:
                self._served[each.request_id] = now, max(each.num_output_tokens, 1)
        order = sorted(running, key=lambda each: (self.level(each), each.arrival_time))
        for each in order[: self._batch]:
            self._served[each.request_id] = now, self._served[each.request_id][1]
        held = frozenset(each.request_id for each in order[self._batch :])
        return StepBounds(holds=held, detail="fastserve_level") if held else None

    def victim(self, running: Sequence[Request]) -> int:
        return max(range(len(running)), key=lambda i: (self.level(running[i]), i))


# ---------------------------------------------------------------------------------------------------------------------
# Shortest predicted answer first. The prediction is the true length times a factor, log-normal with ``sigma``; where a
# request brings a prediction of its own, that one is taken.


class NoisySJF(KeyedPolicy):
    """The shortest predicted answer first; predictions are off by a factor, log-normal with ``sigma``."""

    reads_tokens = False
    reads_max_tokens = True

    def __init__(self, sigma: float = 0.5, seed: int = 0) -> None:
        if not is_number(sigma):
            raise ConfigError("sigma", sigma, "give a number from 0 on")
        self._sigma, self._seed = sigma, seed

    def key(self, request: Request) -> Key:
        """Sorts requests."""
        predicted: float | None = request.predicted_output_tokens
        if predicted is None:
            drawn = Random(f"{self._seed} {request.request_id}").gauss(0.0, self._sigma)
            predicted = request.max_tokens * exp(drawn)
        return predicted, request.arrival_time


# ---------------------------------------------------------------------------------------------------------------------
# The virtual token counter: fair-share with weights of one.


class VTC(FairShare):
    """The client who was given least goes first; output tokens count twice, and idleness earns no credit."""

    reads_tokens = False
