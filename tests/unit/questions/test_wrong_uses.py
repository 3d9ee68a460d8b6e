"""The front door, used wrongly: every wrong guess is one error that names the argument and says what to give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokenyard as ty
from tokenyard import ConfigError, Deployment
from tokenyard.sim import ConstantLatency, replay_parallel

SMALL = Deployment(model="llama-3.2-1b", gpu="l4", max_num_seqs=4, max_model_len=4096)
FEW: dict[str, Any] = {"num_prompts": 4, "input_len": 30, "output_len": 3, "request_rate": 200.0}
ANY: Any = ty
"""The front door without its types: what a type checker would refuse is tried here."""


@pytest.fixture(autouse=True)
def no_trace_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCHED_TRACE_PATH", raising=False)
    monkeypatch.delenv("VLLM_SCHED_TRACE_PATH", raising=False)


@pytest.mark.parametrize(
    ("ask", "field", "says"),
    [
        (lambda: ANY.run(SMALL, "random"), "deployment", "behind the workload"),
        (lambda: ANY.run("random", "vllm serve llama-3.2-1b"), "deployment", 'Deployment("vllm serve MODEL ...", gpu='),
        (lambda: ANY.plan(SMALL, "random"), "deployment", "give a Deployment"),
        (lambda: ANY.sweep("random", {"max_num_seqs": [1]}), "deployment", "give a Deployment"),
        (lambda: ANY.split(SMALL, "random", "1+1"), "deployment", "give a Deployment"),
        (lambda: ANY.upgrade(SMALL, "random", "0.22", "0.33"), "deployment", "give a Deployment"),
        (lambda: ANY.headroom("vllm serve llama-3.2-1b"), "deployment", "give a Deployment"),
        (lambda: ANY.study(SMALL, "random"), "deployment", "give a Deployment"),
        (lambda: ANY.study("random", [SMALL]), "deployments", "several by what each is called"),
        (lambda: ANY.study("random", SMALL, metrics=["ttft"]), "metrics", "functions of a RunResult by name"),
        (lambda: ANY.study("random", SMALL, seeds=3), "seeds", "give several: range(3)"),
        (lambda: ANY.compare("random", SMALL, ["fcfs"], loads=2), "loads", "give several"),
        (lambda: ANY.compare("random", SMALL, "fcfs,bypass"), "policies", 'give several, ["fcfs", MyPolicy]'),
        (lambda: ANY.compare("monday", "tuesday"), "deployment", "compare_recordings() compares two traces"),
        (lambda: ANY.run(None, SMALL), "workload", "the name of a built-in one"),
        (lambda: ANY.run(ty.WorkloadBuilder("mine"), SMALL), "workload", "WorkloadBuilder(...).build()"),
        (lambda: ANY.run("random", SMALL, slo=40, **FEW), "slo", '{"ttft_p90": "500ms"}'),
        (lambda: SMALL.plan("random", price=2.5, space={"max_num_seqs": [1]}), "price", '{"h100": 2.5}'),
        (lambda: SMALL.plan("random", minimize="cost", **FEW), "minimize", "say with slo which bounds"),
        (
            lambda: SMALL.plan("random", minimize="cost", price={"h100": 2}, slo="ttft_p90=1s"),
            "price",
            "l4 may be chosen",
        ),
        (lambda: SMALL.plan("random", jobs=0), "jobs", "a whole number from 1"),
        (lambda: SMALL.sweep("random", **FEW), "space", "or give variants"),
        (lambda: SMALL.sweep("random", [{"max_num_seqs": 2}], **FEW), "space", "a list of variants is variants=[...]"),
        (lambda: SMALL.sweep("random", {"max_num_sqs": [2]}, **FEW), "space", "did you mean max_num_seqs?"),
        (lambda: ANY.split("random", SMALL, (1, 1), **FEW), "split", "2+1"),
        (lambda: ANY.upgrade("random", SMALL, 0.22, 0.33, **FEW), "older", "give it as a text"),
        (lambda: ANY.upgrade("random", SMALL, "0.33", "0.33", **FEW), "newer", "is the version that it comes from"),
    ],
)
def test_a_wrong_guess_is_one_error_that_says_what_to_give(ask: Callable[[], object], field: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ask()
    assert raised.value.field == field
    assert says in str(raised.value)
    of_vllm = str(raised.value.fix).replace("vllm bench's --goodput", "")
    assert "--" not in of_vllm, "flags are for the command line"


@pytest.mark.parametrize(
    "slo",
    [
        {"ttft_p90": "500ms", "tpot": 40},
        "ttft_p90=500ms tpot:40",
        ["ttft_p90=500ms", "tpot:40"],
        (("ttft_p90=500ms", "tpot:40"),),
    ],
)
def test_bounds_may_be_said_in_four_ways(slo: Any) -> None:
    found = ty.run("random", SMALL, slo=slo, rows=False, **FEW)
    assert found.report.goodput is not None
    assert [each.name for each in found.report.goodput.objectives] == ["ttft_p90", "tpot"]


def test_a_class_may_have_an_underscore_in_its_name() -> None:
    built = ty.WorkloadBuilder("mine")
    built.request(at=0.0, prompt=10, output=3, meta={"tier": "long_context"})
    classes = ty.run(built.build(), SMALL).by("tier", slo={"long_context:ttft": 1000})
    assert classes.classes[0].goodput is not None
    assert classes.classes[0].goodput.share == 1.0


def test_a_workload_may_be_a_path_or_several_logs(tmp_path: Path) -> None:
    line = '{{"id": "{}", "created": 1763600000.5, "usage": {{"prompt_tokens": 10, "completion_tokens": 3}}}}\n'
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    for path in (one, other):
        path.write_text(line.format(path.stem))
    assert len(ty.run(one, SMALL).requests) == 1
    assert len(ty.run([one, str(other)], SMALL).requests) == 2
    assert len(ty.study([one, other], SMALL).rows) == 1


def test_a_setting_is_no_attribute_of_a_deployment() -> None:
    with pytest.raises(AttributeError, match=r"resolve\(\) says what it comes to, with_\(max_num_seqs=...\) sets it"):
        _ = ANY.Deployment(model="llama-3.2-1b").max_num_seqs
    assert not hasattr(SMALL, "no_such_thing")


def test_gaps_of_a_request_that_there_is_not() -> None:
    found = ty.run("random", SMALL, **FEW)
    first = found.requests["request_id"][0]
    assert len(found.token_gaps(first)) == 2
    with pytest.raises(ConfigError, match="no request that came is called so"):
        found.token_gaps("nobody")


def test_several_values_of_a_setting_are_a_variant_each(tmp_path: Path) -> None:
    ty.run("random", SMALL, trace=tmp_path / "run", rows=False, **{**FEW, "num_prompts": 30})
    answer = ty.whatif(tmp_path / "run", {"max_num_seqs": [1, 2]})
    assert [each.name for each in answer.variants] == ["max_num_seqs=1", "max_num_seqs=2"]
    named = ty.whatif(tmp_path / "run", {"small": {"max_num_seqs": 1}, "both": {"max_num_seqs": [1, 2]}})
    assert [each.name for each in named.variants] == ["small", "both: max_num_seqs=1", "both: max_num_seqs=2"]
    with pytest.raises(ConfigError, match="max_num_seqs"):
        ty.whatif(tmp_path / "run", {"max_num_seq": 1})


def test_what_a_trace_was_recorded_on_is_a_deployment(tmp_path: Path) -> None:
    ty.run("random", SMALL, trace=tmp_path / "run", rows=False, **{**FEW, "num_prompts": 30})
    with pytest.raises(ConfigError, match=r"recorded = 'vllm serve llama-3.2-1b': give a Deployment: Deployment\("):
        ANY.whatif(tmp_path / "run", {"max_num_seqs": 1}, recorded="vllm serve llama-3.2-1b")


def test_observers_and_policies_are_one_for_each_engine() -> None:
    built = ty.WorkloadBuilder("mine")
    built.request(at=0.0, prompt=10, output=3)
    config, cache = ty.SchedulerConfig(max_model_len=4096), ty.CacheConfig(num_gpu_blocks=100)
    given = (built.build(), config, cache, ConstantLatency(seconds=0.01), "round-robin")
    for wrong in ({"policies": ["fcfs"]}, {"policies": "fcfs"}, {"observers": [None] * 3}):
        with pytest.raises(ConfigError, match="give one for each of 2 engines"):
            replay_parallel(*given, data_parallel_size=2, **wrong)
    assert replay_parallel(*given, data_parallel_size=2, policies=["fcfs", None]).num_finished == 1


def test_every_answer_is_printed_shown_and_becomes_a_table() -> None:
    answers = [
        ty.run("random", SMALL, **FEW),
        ty.upgrade("random", SMALL, "0.22", "0.33", **FEW),
        ty.headroom(SMALL),
        ty.compare("random", SMALL, ["fcfs"], **FEW),
    ]
    for answer in answers:
        assert answer.to_dict()
        assert len(answer.as_table()) > 0
        assert repr(answer).startswith(f"<{type(answer).__name__}")
        assert "\n" not in repr(answer)
        assert str(answer)
        assert answer._repr_html_()


def test_a_workload_is_saved_and_read_again(tmp_path: Path) -> None:
    built = ty.WorkloadBuilder("mine")
    session = built.session(at=0.0)
    for _ in range(2):
        session.turn(user=10, output=3, think=1.0, meta={"tier": "a"})
    built.build().save(tmp_path / "mine.jsonl")
    read = ty.load_workload(tmp_path / "mine.jsonl")
    assert ty.run(read, SMALL).report.ttft_ms == ty.run(built.build(), SMALL).report.ttft_ms
    with pytest.raises(ConfigError, match="cannot be written"):
        built.build().save(tmp_path / "no" / "such" / "folder.jsonl")
