"""Every shipped policy, every mechanism of examples/, or yours, under any order of arrivals, steps, waits and aborts,
in pools nearly too small.

After each step the scheduler's invariants hold, a job has one pin at most, and nothing waits beside an idle engine. In
the end everything drains, pins expire, and every block is free.

``TOKENYARD_POLICIES=mine.py:Mine`` (or several, with commas) tries those instead of the shipped ones.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.examples import examples
from tests.support.toy_engine import ToyEngine, prompt_of

from tokenyard.core.request import Request
from tokenyard.core.sched.policy import Policy
from tokenyard.errors import RequestError
from tokenyard.policies.continuum.policy import Continuum
from tokenyard.policies.continuum.ttl import FinishedTurn, Observations
from tokenyard.policies.named import policy_maker
from tokenyard.vocabulary import SHIPPED

JOBS = ("a", "b", "c", "d")
FOREVER = 1e6
YOURS = os.environ.get("TOKENYARD_POLICIES")
MECHANISMS = Path(__file__).parents[2] / "examples" / "mechanisms.py"
EXAMPLES = [f"{MECHANISMS}:{name}" for name in re.findall(r"(?m)^class (\w+)\(Policy\)", MECHANISMS.read_text())]
POLICIES = YOURS.split(",") if YOURS else [*SHIPPED, *EXAMPLES, "keep-forever", "keep-forever-yielding"]


class _KeepForever:
    """The rule that is hardest on everybody else."""

    def ttl(self, known: Observations, turn: FinishedTurn) -> float:
        return FOREVER if turn.tool else 0.0


def _policy(name: str) -> Policy:
    if name.startswith("keep-forever"):
        return Continuum(_KeepForever(), yielding=name.endswith("yielding"))
    return policy_maker(name)()


class Policies(RuleBasedStateMachine):
    """Jobs take turns; a follow-up begins with what its previous turn left."""

    @initialize(
        policy=st.sampled_from(POLICIES),
        blocks=st.integers(6, 20),
        seats=st.integers(1, 4),
        whole=st.booleans(),
    )
    def begin(self, policy: str, blocks: int, seats: int, whole: bool) -> None:
        self.toy = ToyEngine(
            policy_object=_policy(policy),
            num_gpu_blocks=blocks,
            max_num_seqs=seats,
            max_num_batched_tokens=16,
            scheduler_reserve_full_isl=whole,
        )
        self.number = 0
        self.latest: dict[str, Request] = {}

    @rule(
        job=st.sampled_from(JOBS),
        new=st.integers(1, 16),
        output=st.integers(1, 8),
        tool=st.sampled_from((None, "ls", "make")),
        last=st.booleans(),
    )
    def arrive(self, job: str, new: int, output: int, tool: str | None, last: bool) -> None:
        previous = self.latest.get(job)
        self.number += 1
        prompt = [*(previous.all_token_ids if previous is not None else ()), *prompt_of(f"r{self.number}", new)]
        try:
            self.latest[job] = self.toy.add(
                f"r{self.number}",
                prompt,
                max_tokens=output,
                job_id=job,
                this_func_call=tool,
                is_last_step=last,
                arrival_time=self.toy.now,
            )
        except RequestError:
            self.latest.pop(job, None)  # too long for this pool: the job begins anew
        if last:
            self.latest.pop(job, None)

    @rule(seconds=st.sampled_from((0.01, 0.5, 3.0)))
    def wait(self, seconds: float) -> None:
        self.toy.now += seconds

    @rule()
    def step(self) -> None:
        running, waiting = self.toy.scheduler.get_request_counts()
        self.toy.now += 0.02
        output = self.toy.step()
        assert running or not waiting or output.req_ids, "requests wait, nothing runs, and nothing is admitted"

    @precondition(lambda self: self.toy.scheduler.requests)
    @rule(which=st.integers(0, 100))
    def abort(self, which: int) -> None:
        unfinished = list(self.toy.scheduler.requests)
        self.toy.abort(unfinished[which % len(unfinished)])

    @invariant()
    def one_pin_per_job(self) -> None:
        jobs = [request.job_id for request in self.toy.scheduler.pins] if hasattr(self, "toy") else []
        assert len(jobs) == len(set(jobs))

    def teardown(self) -> None:
        if not hasattr(self, "toy"):
            return
        for _ in range(2000):
            if not self.toy.scheduler.has_requests():
                break
            self.step()
        assert not self.toy.scheduler.requests, "requests are left"
        self.toy.now += 2 * FOREVER
        self.toy.step()
        assert len(self.toy.scheduler.pins) == 0
        assert self.toy.free == self.toy.scheduler.num_total_blocks - 1


TestPolicies = Policies.TestCase
TestPolicies.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
