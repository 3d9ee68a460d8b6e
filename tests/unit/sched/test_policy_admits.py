"""A policy may say no: the reason is its own, and goes through trace, why, report and metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.toy_engine import ToyEngine

import tokenyard as ty
from tokenyard.core.sched.policy import PolicyGate
from tokenyard.errors import PolicyError, StuckError
from tokenyard.explain.why.why import why
from tokenyard.policies import AdmissionView, Refused

DEPLOYMENT = ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s", num_gpu_blocks_override=400, max_model_len=6000)


class DecodeReserve(ty.Policy):
    """Admits only while everybody who runs can still grow by so many blocks."""

    reads_tokens = False
    blocks_each = 20
    views: list[AdmissionView]

    def __init__(self) -> None:
        self.views = []

    def admits(self, request: ty.Request, view: AdmissionView) -> bool | Refused:
        self.views.append(view)
        needed = -(-request.num_prompt_tokens // 16)
        return view.free_blocks - needed >= self.blocks_each * len(view.running) or Refused("decode_reserve")


class OthersToo(DecodeReserve):
    reads_tokens = False

    def admits(self, request: ty.Request, view: AdmissionView) -> bool | Refused:
        return request.num_prompt_tokens < 1000 or not view.running or Refused("large", tries_others=True)


def load() -> ty.Workload:
    w = ty.WorkloadBuilder("load")
    for i in range(12):
        w.request(at=0.1 * i, prompt=800 if i % 3 else 1200, output=300, request_id=f"r{i}")
    return w.build()


@pytest.mark.slow
def test_its_reason_is_in_trace_why_and_report(tmp_path: Path) -> None:
    policies: list[DecodeReserve] = []

    def make() -> DecodeReserve:
        policies.append(DecodeReserve())
        return policies[-1]

    run = ty.run(load(), DEPLOYMENT, policy=make, trace=tmp_path)
    assert run.result.num_finished == 12
    assert run.report.recorded_reasons["policy_refused"].seconds > 0
    plain = ty.run(load(), DEPLOYMENT)
    assert (run.report.preemptions or 0) < (plain.report.preemptions or 0)
    found = why(tmp_path, "r11")
    assert {span.detail for span in found.spans if span.reason == "policy_refused"} == {"decode_reserve"}
    assert "decode_reserve" in str(found)
    held = "for policy_refused (decode_reserve): the scheduling policy held it back."
    assert held in " ".join(str(run.why("r11")).split())
    assert held in run.report.answer.sentence
    views = [view for policy in policies for view in policy.views]
    assert all(0 <= view.free_blocks <= view.total_blocks == 400 for view in views)
    assert all(view.num_waiting >= 1 and 0 < view.new_tokens <= view.budget_left for view in views)


@pytest.mark.slow
def test_others_may_be_tried(tmp_path: Path) -> None:
    run = ty.run(load(), DEPLOYMENT, policy=OthersToo, trace=tmp_path)
    assert run.result.num_finished == 12
    first = run.requests["first_scheduled_s"]
    assert first[list(run.requests["request_id"]).index("r3")] > first[list(run.requests["request_id"]).index("r4")]
    assert any(span.detail == "large" for span in why(tmp_path, "r3").spans)


class OthersSeen(DecodeReserve):
    def admits(self, request: ty.Request, view: AdmissionView) -> bool | Refused:
        self.views.append(view)
        return request.request_id == "runs" or Refused("later", tries_others=True)


def test_candidates_see_one_and_the_same_running_list() -> None:
    """A list made for each of many candidates would cost as much as there are requests that run."""
    policy = OthersSeen()
    toy = ToyEngine(policy_object=policy)
    toy.add("runs", 4, max_tokens=9)
    toy.step()
    for name in ("a", "b"):
        toy.add(name, 4)
    policy.views.clear()
    toy.step()
    first, second = (view.running for view in policy.views)
    assert [request.request_id for request in first] == ["runs"]
    assert first is second


def test_leaps_change_nothing() -> None:
    """With rows, which look into every step, and without, where steps are taken in one stroke."""
    stepwise = ty.run(load(), DEPLOYMENT, policy=DecodeReserve, observer=ty.StepObserver())
    leaping = ty.run(load(), DEPLOYMENT, policy=DecodeReserve, rows=False)
    for name in ("ttft_ms", "e2e_ms", "queue_ms"):
        assert getattr(stepwise.report, name) == getattr(leaping.report, name)


class Never(ty.Policy):
    def admits(self, request: ty.Request, view: AdmissionView) -> bool | Refused:
        return Refused("never")


def test_a_policy_that_admits_nobody_stands_still() -> None:
    with pytest.raises(StuckError, match="policy_refused"):
        ty.run(load(), DEPLOYMENT, policy=Never)


@pytest.mark.parametrize("answer", [False, None, "no", Refused(""), 1])
def test_other_answers_are_the_policys_mistake(answer: object) -> None:
    class Wrong(ty.Policy):
        def admits(self, request: ty.Request, view: AdmissionView) -> bool | Refused:
            return answer  # type: ignore[return-value]

    with pytest.raises(PolicyError, match="admits"):
        ty.run(load(), DEPLOYMENT, policy=Wrong)


def test_who_does_not_ask_pays_nothing() -> None:
    assert not PolicyGate(ty.Policy()).may_refuse
    assert PolicyGate(Never()).may_refuse
