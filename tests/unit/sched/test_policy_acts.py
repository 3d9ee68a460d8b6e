"""What a policy may do besides ordering: preempt, reject, hear of ends; ties go to who came first."""

from __future__ import annotations

import pytest

import tokenyard as ty
from tokenyard import CacheConfig, EngineCore, ModelOutput, SamplingParams, Scheduler, SchedulerConfig
from tokenyard.core.engine import DoneStep
from tokenyard.core.request import Request
from tokenyard.core.sched.policy import AdmissionView
from tokenyard.core.sched.queues import RequestQueue, WaitingQueues
from tokenyard.errors import PolicyError
from tokenyard.policies import Rejected, StepBounds
from tokenyard.sim import Autoscaling, ConstantLatency, ReplayResult, Router


class Shed(ty.Policy):
    """No request waits behind more than three."""

    reads_tokens = False

    def admits(self, request: Request, view: AdmissionView) -> bool | Rejected:
        return view.num_waiting <= 3 or Rejected("overload")


class Late(ty.Policy):
    """Requests that have waited for two seconds are rejected."""

    reads_tokens = False

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds:
        late = {each.request_id for each in queues if now - each.arrival_time > 2}
        return StepBounds(rejects=late, detail="too_late")


class Swap(ty.Policy):
    """The request with most output gives way to the head of the queue, once."""

    reads_tokens = False

    def __init__(self) -> None:
        self.swapped: list[str] = []
        self.ended: list[tuple[str, str]] = []

    def next_queue(self, queues: WaitingQueues) -> RequestQueue:
        return queues.waiting if len(queues.waiting) else queues.skipped

    def step_begins(self, now: float, queues: WaitingQueues) -> StepBounds | None:
        running = self.context.state.running
        if len(queues) and len(running) == 2 and not self.swapped:
            self.swapped.append(max(running, key=lambda each: each.num_output_tokens).request_id)
            return StepBounds(preempts=self.swapped)
        return None

    def request_finished(self, now: float, request: Request) -> None:
        self.ended.append((request.request_id, request.status.name))


def crowd() -> ty.Workload:
    w = ty.WorkloadBuilder("crowd", seed=0)
    for i in range(12):
        w.request(at=0.1 * i, prompt=20, output=10)
    return w.build()


def replayed(policy: type[ty.Policy] | ty.Policy, max_num_seqs: int = 2) -> ReplayResult:
    config = ty.SchedulerConfig(max_num_seqs=max_num_seqs, max_model_len=512)
    cache = ty.CacheConfig(num_gpu_blocks=100)
    return ty.replay(crowd(), config, cache, ConstantLatency(seconds=0.1), policy=policy, rows=True)


@pytest.mark.parametrize("policy", [Shed, Late])
def test_rejected_requests_are_counted_as_refused_everywhere(policy: type[ty.Policy]) -> None:
    found = replayed(policy)
    assert found.refused
    assert len(found.refused) + found.num_finished == 12
    word = "overload" if policy is Shed else "too_late"
    assert all(word in each.problem for each in found.refused)
    assert found.rows is not None
    reasons = list(found.rows.requests["finish_reason"])
    assert reasons.count("refused") == len(found.refused)
    people = found.rows.report.outcomes
    assert people is not None
    assert (people.arrived, people.refused, people.served) == (12, len(found.refused), found.num_finished)


def test_a_policy_preempts_whom_it_wants_and_hears_of_every_end() -> None:
    policy = Swap()
    found = replayed(policy)
    assert found.num_finished == 12
    assert found.rows is not None
    preempted = [row["request_id"] for row in found.rows.requests if row["preemptions"]]
    assert preempted == policy.swapped
    assert found.rows.report.preemptions == 1
    assert sorted(policy.ended) == sorted((f"r{i}", "FINISHED_LENGTH_CAPPED") for i in range(12))


def test_an_engine_tells_its_host_of_the_rejected() -> None:
    class Never:
        def execute_model(self, plan: object) -> None:
            """Nothing is computed."""

        def sample_tokens(self, plan: object, grammar: object) -> DoneStep:
            return DoneStep(ModelOutput.from_lists([]))

    class Nobody(ty.Policy):
        def admits(self, request: Request, view: AdmissionView) -> Rejected:
            return Rejected("closed")

    core = EngineCore(Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=9), policy=Nobody()), Never())  # type: ignore[arg-type]
    core.add_request(Request("a", [1, 2, 3], SamplingParams(max_tokens=2)))
    core.step()
    assert [str(each) for each in core.take_refused()] == [
        "request 'a': policy = 'closed': has rejected it: load is shed"
    ]
    assert not core.scheduler.has_unfinished_requests()


def test_of_equals_who_came_first_goes_first() -> None:
    class Same(ty.KeyedPolicy):
        def key(self, request: Request) -> tuple[float, ...]:
            return (0.0,)

    scheduler = Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=9), policy=Same())
    names = ["r0", "r1", "r10", "r11", "r2"]
    for name in names:
        scheduler.add_request(Request(name, [1, 2, 3], SamplingParams(max_tokens=2), arrival_time=0.0))
    assert [each.request_id for each in scheduler.waiting] == names


def test_what_is_no_answer_is_named() -> None:
    class Odd(ty.Policy):
        def admits(self, request: Request, view: AdmissionView) -> bool | Rejected:
            return Rejected("")

    with pytest.raises(PolicyError, match=r"Odd.admits returned .*: return True, Refused"):
        replayed(Odd)


def test_a_subclass_that_forgets_or_misspells_a_hook_is_told_at_once() -> None:
    with pytest.raises(ty.ConfigError, match="did you mean request_finished"):
        type("A", (ty.Policy,), {"request_finshed": lambda self: None})
    with pytest.raises(ty.ConfigError, match=r"choose.*: is missing"):
        type("B", (Router,), {})
    with pytest.raises(ty.ConfigError, match=r"FleetPolicy.scale"):
        type("C", (Autoscaling,), {"desired": lambda self: 8})
