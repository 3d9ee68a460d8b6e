"""One of several questions that cannot run is named, and the others are answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tokenyard as ty
from tokenyard import ConfigError, Deployment
from tokenyard.cli.main import main
from tokenyard.errors import NoStartError, StuckError
from tokenyard.policies import Refused

LARGE = Deployment("vllm serve Qwen/Qwen3-32B-FP8 --max-model-len 8192", gpu="h100")
"""Its weights do not fit an L4."""
USUAL = Deployment(model="llama-3.1-8b", gpu="h100")
"""The model's own context, 131,072 tokens, does not fit beside them on an L4."""
FEW: dict[str, Any] = {"num_prompts": 6, "input_len": 300, "output_len": 8, "request_rate": 20.0}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    ty.run("random", LARGE, trace=tmp_path / "t", **FEW)
    return tmp_path / "t"


def test_a_whatif_names_a_gpu_that_cannot_start_and_answers_for_the_other(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", str(trace), "--gpu", "h200", "l4"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("With gpu=h200: ")
    assert "With gpu=l4: no answer. vLLM would not start: qwen3-32b-fp8 needs 32.0 GiB for weights" in text
    assert main(["whatif", str(trace), "--gpu", "l4", "h200", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in told["variants"]] == ["gpu=h200"]
    assert [(each["name"], each["code"]) for each in told["not_answered"]] == [("gpu=l4", "no_start")]


def test_every_form_of_a_change_is_answered_as_far_as_it_can_be(trace: Path) -> None:
    named = {"one": {"tensor_parallel_size": 3}, "two": {"tensor_parallel_size": 2}, "small": {"max_model_len": 16}}
    told = ty.whatif(trace, [named, "gpu=l4", LARGE.with_(gpu="a10g")])
    assert [each.name for each in told.variants] == ["two"]
    codes = {each.name: each.code for each in told.not_answered}
    assert list(codes.values()) == ["no_start", "serves_none", "no_start", "no_start"]
    assert {"one", "gpu=l4", "small"} < set(codes)
    assert "4 not answered" in told.summary()


def test_where_nothing_can_be_answered_that_is_the_error_and_nothing_is_replayed(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="serves none of the requests"):
        ty.whatif(trace, "max_model_len=16")
    monkeypatch.setattr("tokenyard.questions.whatif.replay_as_it_was", None)
    with pytest.raises(NoStartError):
        ty.whatif(trace, "gpu=l4")
    with pytest.raises(ConfigError) as caught:
        ty.whatif(trace, "gpu=l4,a10g")
    assert caught.value.code == "no_start"
    assert all(f"{name}: vLLM would not start" in str(caught.value) for name in ("gpu=l4", "gpu=a10g"))
    with pytest.raises(ConfigError, match="did you mean max_num_seqs"):  # a mistake is no variant that cannot start
        ty.whatif(trace, ["max_num_seqs=8", "max_num_sequences=8"])


def test_plan_sweep_and_study_have_a_row_with_the_reason() -> None:
    planned = ty.plan("random", LARGE, space={"gpu": ["l4", "h200"]}, largest_load=False, **FEW)
    assert planned.recommended is not None
    assert planned.recommended.settings == {"gpu": "h200"}
    second = str(planned).split("\n\n")[0].split("\n", 1)[1]
    assert " ".join(second.split()).startswith("Not replayed: gpu=l4: vLLM would not start: qwen3-32b-fp8 needs")
    swept = ty.sweep("random", LARGE, {"gpu": ["l4", "h200"]}, jobs=1, **FEW)
    assert [row.problem is None for row in swept.rows] == [False, True]
    studied = ty.study("random", {"l4": LARGE.with_(gpu="l4"), "h200": LARGE.with_(gpu="h200")}, **FEW)
    assert [row.problem is None for row in studied.rows] == [False, True]


class Stands(ty.Policy):
    """Admits no request, so that nothing ever runs."""

    def admits(self, request: ty.Request, view: object) -> Refused:
        return Refused("stands")


def test_compare_names_what_cannot_run_and_compares_the_others() -> None:
    settings = ty.compare("random", LARGE, space={"tensor_parallel_size": "2..3"}, **FEW)
    assert settings.policies == ("as it is", "tensor_parallel_size=2")
    assert [(each.name, each.code) for each in settings.not_compared] == [("tensor_parallel_size=3", "no_start")]
    assert "tensor_parallel_size=3 is not among them: vLLM would not start" in " ".join(str(settings).split())
    policies: dict[str, Any] = {"stands": Stands, "bypass": "bypass", "fcfs": "fcfs"}
    compared = ty.compare("random", LARGE, policies, loads=(1.0, 2.0), **FEW)
    assert compared.policies == ("bypass", "fcfs")
    assert [(cell.policy, cell.load) for cell in compared.cells] == [
        (policy, load) for load in (1.0, 2.0) for policy in ("bypass", "fcfs")
    ]
    assert [(each.name, each.code) for each in compared.not_compared] == [("stands", "stuck")]
    assert compared.cell("bypass", 2.0).speedup.mean == 1.0
    with pytest.raises(StuckError):
        ty.compare("random", LARGE, {"stands": Stands}, **FEW)


# ---- a context that fits, where none was given


def test_a_plan_takes_a_context_that_the_requests_need_where_the_models_own_does_not_fit() -> None:
    planned = ty.plan("random", USUAL, space={"gpu": ["l4", "h100"]}, price={"l4": 0.8, "h100": 2.5},
                      slo="ttft_p90=60s", minimize="cost", largest_load=False, **FEW)  # fmt: skip
    assert planned.recommended is not None
    assert (planned.recommended.settings, planned.recommended.taken) == ({"gpu": "l4"}, {"max_model_len": 1024})
    assert [row.taken for row in planned.rows if row.settings["gpu"] == "h100"] == [{}]
    assert planned.serve is not None
    assert "--max-model-len 1024" in planned.serve
    assert planned.notes[0].startswith("max_model_len 1,024 is taken, for none was given and vLLM would not start")
    assert "the longest request has 308 tokens" in planned.notes[0]
    assert str(planned).startswith("gpu=l4 (with max_model_len=1024) ")


@pytest.mark.parametrize(
    "given",
    [
        {"max_model_len": 131_072},  # a length that was given stays
        {"gpu_memory_utilization": 0.72},  # weights that do not fit are another problem
    ],
    ids=str,
)
def test_what_a_shorter_context_is_no_answer_to_stays_a_problem(given: dict[str, Any]) -> None:
    space = {"gpu": ["l4", "h100"]}
    rows = ty.plan("random", USUAL.with_(**given), space=space, largest_load=False, **FEW).rows
    assert rows[0].problem is not None
    assert rows[0].taken == {}


def test_requests_longer_than_what_fits_are_no_reason_for_a_shorter_context() -> None:
    planned = ty.sweep("random", USUAL, {"gpu": ["l4"]}, jobs=1, **{**FEW, "input_len": 60_000})
    assert planned.rows[0].problem is not None
    assert "max_model_len = 131072" in planned.rows[0].problem


def test_a_sweep_takes_one_too_and_its_table_says_so() -> None:
    swept = ty.sweep("random", USUAL, {"gpu": ["l4", "h100"]}, jobs=1, **FEW)
    assert list(swept.as_table()["taken"]) == ["max_model_len=1024", None]
    assert "gpu=l4 (with max_model_len=1024)" in " ".join(str(swept).split())


def test_a_whatif_takes_one_too_and_says_so(tmp_path: Path) -> None:
    ty.run("random", USUAL, trace=tmp_path / "t", **FEW)
    variant = ty.whatif(tmp_path / "t", "gpu=l4").variants[0]
    assert any(note.startswith("max_model_len 1,024 is taken") for note in variant.notes)
    assert variant.serve_flags == ["--max-model-len", "1024"]
    with pytest.raises(NoStartError, match="max_model_len = 131072"):
        ty.whatif(tmp_path / "t", "gpu=l4,max_model_len=131072")
