"""Mechanisms that are no order of the queue, each a policy of a few lines: docs/tasks/mechanisms.md.

tokenyard run chat --gpu l40s --scheduling-policy examples/mechanisms.py:DecodeReserve
make test-plugin PLUGIN=examples/mechanisms.py:DecodeReserve
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tokenyard import Deployment, Policy, Request, run
from tokenyard.policies import AdmissionView, Candidate, Refused, StepBounds, StepBudget, WaitingQueues


class DecodeReserve(Policy):
    """Admit only while everyone who runs, the new one included, can still grow by so many blocks."""

    reads_tokens = False
    blocks_each = 16

    def admits(self, request: Request, view: AdmissionView) -> bool | Refused:
        left = view.free_blocks - -(-view.new_tokens // 16)
        return left >= self.blocks_each * (len(view.running) + 1) or not view.running or Refused("decode_reserve")


class MemoryVeto(Policy):
    """Admit only whom memory holds to the end of its answer, beside the ends of all who run (as Orca reserves it)."""

    reads_tokens = False

    def admits(self, request: Request, view: AdmissionView) -> bool | Refused:
        whole = sum(-(-(each.num_prompt_tokens + each.max_tokens) // 16) for each in (*view.running, request))
        return whole < view.total_blocks or not view.running or Refused("memory_veto")


class SeatsByLatency(Policy):
    """Fewer seats while steps take longer than wanted, more while they are faster."""

    reads_tokens = False
    wanted_s = 0.0235

    def __init__(self) -> None:
        self.seats = 8.0
        self.last: float | None = None

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds:
        if self.last is not None:
            slow = now - self.last > self.wanted_s
            self.seats = max(2.0, self.seats * 0.98) if slow else min(64.0, self.seats + 0.05)
        self.last = now
        return StepBounds(seats=int(self.seats), detail="seats_by_latency")


class PrefillShare(Policy):
    """Prompts get a quarter of a step at most while anyone decodes."""

    reads_tokens = False
    share = 0.25

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds | None:
        state = self.context.state
        if not any(each.num_output_tokens for each in state.running):
            return None
        return StepBounds(prefill_tokens=int(self.share * state.max_num_scheduled_tokens), detail="prefill_share")


class ChunkByStep(Policy):
    """The more decode, the smaller the chunks of prompts: 2,048 tokens while none does, 256 from 32 on."""

    reads_tokens = False

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds:
        decoding = sum(1 for each in self.context.state.running if each.num_output_tokens)
        return StepBounds(longest_prefill=max(256, 2048 - 56 * decoding), detail="chunk_by_step")


class KeepHalf(Policy):
    """A request that is preempted keeps the first half of what it has computed."""

    def keeps_tokens(self, request: Request) -> int:
        return request.num_computed_tokens // 2


class KeepShared(Policy):
    """Blocks whose content more than one request has asked for are evicted last, all others first."""

    def __init__(self) -> None:
        self.asked: Counter[bytes | int] = Counter()

    def request_admitted(self, now: float, request: Request) -> None:
        self.asked.update(request.block_hashes)

    def evicts_first(self, blocks: Sequence[int], contents: Sequence[bytes | int | None]) -> Sequence[bool]:
        return [content is None or self.asked[content] < 2 for content in contents]


class LongPromptsApart:
    """A limit of its own: while a long prompt is being computed, no second one begins."""

    def __init__(self, tokens: int = 2048) -> None:
        self.tokens = tokens
        self.begun: Request | None = None

    def ask(self, candidate: Candidate, budget: StepBudget, queues: WaitingQueues) -> Refused | None:
        if candidate.request.num_tokens - candidate.num_computed_tokens <= self.tokens:
            return None
        if self._other_goes_on(candidate.request):
            return Refused("long_prompts_apart", tries_others=True)
        self.begun = candidate.request
        return None

    def _other_goes_on(self, request: Request) -> bool:
        begun = self.begun
        if begun is None or begun is request or begun.status.is_finished:
            return False
        return begun.num_computed_tokens < begun.num_prompt_tokens


class OneLongPrompt(Policy):
    """Long prompts are computed one after the other; short ones pass them."""

    reads_tokens = False

    def __init__(self) -> None:
        self.limits = (LongPromptsApart(),)


if __name__ == "__main__":
    deployment = Deployment(model="Qwen/Qwen3-8B", gpu="l40s", num_gpu_blocks_override=2600, max_model_len=32_768)
    for policy in ("fcfs", DecodeReserve, PrefillShare):
        made = run("chat", deployment, policy=policy, limit=20)
        name = policy if isinstance(policy, str) else policy.__name__
        print(f"{name:14} TTFT p90 {made.report.ttft_ms.p90:7,.0f} ms, preempted {made.report.preemptions or 0}")
