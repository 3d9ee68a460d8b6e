"""``tokenyard whatif`` as a user calls it: a recorded run, what cannot be asked, and where no user can answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import call

from tokenyard.models.gpus import GPUS
from tokenyard.models.named import MODELS
from tokenyard.questions.recorded.recorded_run import read_run
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.units import milliseconds

FLAGS = ("--limit", "3", "--rate-scale", "30", "--num-gpu-blocks-override", "900", "--max-num-seqs", "2")
SAME_TIMES = ("--latency", "constant:0.02", "--no-async-scheduling", "--max-model-len", "8192", "--advice", "none")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whatif")
    assert call("run", "chat", *FLAGS, *SAME_TIMES, "--trace", "trace", cwd=folder).code == 0
    return folder


def test_an_answer_is_what_a_run_with_that_setting_reports(folder: Path) -> None:
    told = json.loads(call("whatif", "trace", "--set", "max_num_seqs=4", "--json", cwd=folder).stdout)
    assert told["self_check"]["parting"] is None
    happened = json.loads(call("run", "chat", *FLAGS[:-1], "4", *SAME_TIMES, "--json", cwd=folder).stdout)
    then = {each["name"]: each["variant"] for each in told["variants"][0]["figures"]}
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"):
        assert then[f"{name}.mean"] == pytest.approx(happened[name]["mean"], rel=1e-6)
    assert then["prefix_hit_rate.local"] == pytest.approx(happened["prefix_hit_rate"]["local"])
    assert told["variants"][0]["serve_flags"] == ["--max-num-seqs", "4"]


@pytest.mark.parametrize("version", ["0.22", "0.27"])
def test_another_version_decides_and_defaults_as_a_run_of_it(folder: Path, version: str) -> None:
    told = json.loads(call("whatif", "trace", "--set", f"vllm_version={version}", "--json", cwd=folder).stdout)
    words = ("--vllm-version", version, "--json")
    happened = json.loads(call("run", "chat", *FLAGS, *SAME_TIMES, *words, cwd=folder).stdout)
    then = {each["name"]: each["variant"] for each in told["variants"][0]["figures"]}
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"):
        assert then[f"{name}.mean"] == pytest.approx(happened[name]["mean"], rel=1e-6)
    call("whatif", "trace", "--set", "vllm_version=0.5", cwd=folder).refused("0.22, 0.23")


def test_a_setting_that_was_so_changes_nothing(folder: Path) -> None:
    shown = call("whatif", "trace", "--set", "max_num_seqs=2,4", cwd=folder).stdout
    assert "With max_num_seqs=2: nothing changes." in shown
    assert "With max_num_seqs=4: nothing changes." not in shown


def test_the_tables(folder: Path) -> None:
    shown = call("whatif", "trace", "--set", "max_num_seqs=4", "--policy", "continuum-ttl", cwd=folder)
    assert shown.code == 0
    assert "The run as it was, replayed" in shown.stdout
    assert "With max_num_seqs=4" in shown.stdout
    assert "With scheduling_policy=continuum-ttl" in shown.stdout
    assert "all 1," in shown.stdout or "steps are the same" in shown.stdout


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--set", "max_num_seqs=4", "--set", "max_num_seqs=3"), ["max_num_seqs=4", "max_num_seqs=3"]),
        (("--set", "max_num_seqs=4", "max_num_seqs=3"), ["max_num_seqs=4", "max_num_seqs=3"]),
        (("--set", "max_num_seqs=4,3"), ["max_num_seqs=4", "max_num_seqs=3"]),
        (
            ("--set", "max_num_seqs=4,3,rate_scale=2"),
            ["max_num_seqs=4,rate_scale=2", "max_num_seqs=3,rate_scale=2"],
        ),
        (("--policies", "fcfs,bypass"), ["scheduling_policy=fcfs", "scheduling_policy=bypass"]),
    ],
)
def test_values_are_written_as_for_plan_and_sweep_and_each_is_a_variant(
    words: tuple[str, ...], names: list[str], folder: Path
) -> None:
    told = json.loads(call("whatif", "trace", *words, "--json", cwd=folder).stdout)
    assert [each["name"] for each in told["variants"]] == names


def test_without_a_question_the_check_is_shown(folder: Path) -> None:
    shown = call("whatif", "trace", cwd=folder)
    assert shown.code == 0
    assert "With " not in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "nothing=1"), "tensor_parallel_size"),
        (("--set", "max_num_seqs=x"), "give a whole number"),
        (("--policy", "nobody.py:Nothing"), "nobody.py"),
        (("--set", "tensor_parallel_size=3"), "tensor_parallel_size"),
        (("--set", "data_parallel_size=2"), "one engine is asked about"),
        (("--set", "kv_cache_dtype=fp7"), "kv_cache_dtype"),
        (("--set", "split=1+1"), "use one of"),
    ],
)
def test_what_cannot_be_asked_is_said_before_anything_is_replayed(
    arguments: tuple[str, ...], said: str, folder: Path
) -> None:
    call("whatif", "trace", *arguments, cwd=folder).refused(said)


def test_a_poor_fit_is_not_passed_over(folder: Path) -> None:
    """Every step of the trace is said to have begun ever later than it did: no price of a token explains that."""
    (path,) = (folder / "trace").glob("*.steps.jsonl")
    stretched = folder / "stretched.steps.jsonl"
    with stretched.open("w") as out:
        for line in path.read_text().splitlines():
            record = json.loads(line)
            for name in ("ts", "arrival_time", "first_scheduled_time", "first_token_time", "finished_time"):
                if name in record:
                    record[name] = record[name] ** 2
            out.write(json.dumps(record) + "\n")
    call("whatif", stretched, "--set", "max_num_seqs=4", cwd=folder).refused("off by more than 10 %", "--yes goes on")
    assert call("whatif", stretched, cwd=folder).code == 0, "the check alone is shown"
    gone_on = call("whatif", stretched, "--set", "max_num_seqs=4", "--yes", cwd=folder)
    assert "This is a poor fit" in gone_on.stdout


def test_other_emitters_say_too_little(folder: Path) -> None:
    (path,) = (folder / "trace").glob("*.steps.jsonl")
    bare = folder / "bare.steps.jsonl"
    bare.write_text("".join(line + "\n" for line in path.read_text().splitlines()[1:]))
    call("whatif", bare, cwd=folder).refused("does not say how its scheduler was configured")


MODELLED = (
    "--limit",
    "3",
    "--rate-scale",
    "90",
    "--model",
    "llama-3.1-8b",
    "--max-model-len",
    "8192",
    "--advice",
    "none",
)
LINE = "vllm serve llama-3.1-8b --max-model-len 8192"


@pytest.fixture(scope="module")
def on_l4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deployments")
    assert call("run", "chat", *MODELLED, "--gpu", "l4", "--trace", "l4", cwd=folder).code == 0
    return folder


def figures(variant: dict[str, Any]) -> dict[str, float]:
    return {each["name"]: each["variant"] for each in variant["figures"]}


def test_another_gpu_is_what_a_run_on_it_reports(on_l4: Path) -> None:
    told = json.loads(call("whatif", "l4", "--gpu", "h100", "a10", "--json", cwd=on_l4).stdout)
    for variant, gpu in zip(told["variants"], ("h100", "a10"), strict=True):
        happened = json.loads(call("run", "chat", *MODELLED, "--gpu", gpu, "--json", cwd=on_l4).stdout)
        then = figures(variant)
        for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
            assert then[f"{name}.mean"] == pytest.approx(happened[name]["mean"], rel=0.05), (gpu, name)
        assert any(f"llama-3.1-8b on {gpu}" in note for note in variant["notes"]), "what it rests on is said"
        assert any("KV blocks" in note for note in variant["notes"])


def test_another_gpu_has_the_range_that_the_models_error_leaves_of_every_figure(on_l4: Path) -> None:
    told = json.loads(call("whatif", "l4", "--gpu", "a10", "--json", cwd=on_l4).stdout)
    asked = CalibratedLatency(MODELS["llama-3.1-8b"], GPUS["a10"], version="0.33")
    known = asked.known_error(read_run(on_l4 / "l4").load)
    assert known.tpot.low < 0.9
    assert known.tpot.high > 1.2, "or the range below would show nothing"
    found = {each["name"]: each for each in told["variants"][0]["figures"]}
    for name, each in found.items():
        assert each["low"] <= each["variant"] <= each["high"], name
    tpot, tokens = found["tpot_ms.mean"], found["throughput.output_tokens_per_s"]
    lowest, highest = min(known.tpot.low, known.ttft.low), max(known.tpot.high, known.ttft.high)
    assert lowest * 0.98 <= tpot["low"] / tpot["variant"] <= known.tpot.low * 1.05
    assert known.tpot.high * 0.95 <= tpot["high"] / tpot["variant"] <= highest * 1.05
    assert found["e2e_ms.mean"]["high"] / found["e2e_ms.mean"]["low"] > 0.9 * known.tpot.high / known.tpot.low
    assert tokens["low"] < tokens["variant"], "slower steps make fewer tokens a second"
    shown = call("whatif", "l4", "--gpu", "a10", cwd=on_l4).stdout
    (line,) = (line for line in shown.splitlines() if line.strip().startswith("TPOT, mean") and ".." in line)
    assert milliseconds(tpot["low"]) in line
    assert milliseconds(tpot["high"]) in line
    assert max(map(len, shown.splitlines())) <= 100


def test_a_prediction_of_a_prediction_has_the_range_of_the_first(on_l4: Path) -> None:
    """The trace is a replay's: that its replay repeats it proves nothing, and what `run` says of it counts."""
    told = json.loads(call("whatif", "l4", "--set", "max_num_seqs=8", "--json", cwd=on_l4).stdout)
    prediction = told["prediction"]
    happened = json.loads(call("run", "chat", *MODELLED, "--gpu", "l4", "--json", cwd=on_l4).stdout)
    assert prediction["step_time"] == "calibrated"
    assert prediction["error"] == happened["header"]["step_time_error"], "the same range, from the same load"
    factors = [prediction[name] for name in ("tpot_low", "tpot_high", "ttft_low", "ttft_high")]
    within = "{:.2f} to {:.2f} times what is shown of TPOT, {:.2f} to {:.2f} of TTFT".format(*factors)
    assert within in prediction["error"]
    found = {each["name"]: each for each in told["variants"][0]["figures"]}
    assert all(each["uncertainty"] is None for each in found.values())
    assert all(each["low"] <= each["variant"] <= each["high"] for each in found.values())
    tpot, e2e = found["tpot_ms.mean"], found["e2e_ms.mean"]
    assert all(each["change_low"] <= each["change"] <= each["change_high"] for each in found.values() if each["change"])
    assert tpot["change_high"] - tpot["change_low"] < tpot["high"] / tpot["variant"] - 1, "errors of both cancel out"
    assert tpot["low"] / tpot["variant"] <= prediction["tpot_low"] * 1.05
    assert tpot["high"] / tpot["variant"] >= prediction["tpot_high"] * 0.95
    assert e2e["high"] / e2e["low"] > 0.9 * prediction["tpot_high"] / prediction["tpot_low"]
    shown = call("whatif", "l4", "--set", "max_num_seqs=8", cwd=on_l4).stdout
    assert "This trace is itself a prediction" in shown
    assert "check's error" not in shown
    assert "of change" in shown
    elsewhere = json.loads(call("whatif", "l4", "--gpu", "a10", "--json", cwd=on_l4).stdout)["variants"][0]["figures"]
    assert {each["change_low"] for each in elsewhere} == {None}, "two deployments are not as far off as each other"


def test_where_the_error_of_a_prediction_is_not_known_no_range_is_made_up(folder: Path) -> None:
    told = json.loads(call("whatif", "trace", "--set", "max_num_seqs=4", "--json", cwd=folder).stdout)
    assert told["prediction"] == {"step_time": "constant:0.02", "error": "not meant to be a time"} | dict.fromkeys(
        ("ttft_low", "ttft_high", "tpot_low", "tpot_high")
    )
    figures_told = told["variants"][0]["figures"]
    assert {each[name] for each in figures_told for name in ("low", "high", "uncertainty")} == {None}
    shown = call("whatif", "trace", "--set", "max_num_seqs=4", cwd=folder).stdout
    assert "check's error" not in shown
    assert "error of a step: not meant to be a time" in " ".join(shown.split())


def test_the_trace_of_a_machine_is_no_prediction(on_l4: Path) -> None:
    """As vLLM leaves it: its check is the error, and decisions are compared with those of its steps."""
    (path,) = (on_l4 / "l4").glob("*.steps.jsonl")
    first, _, rest = path.read_text().partition("\n")
    start = json.loads(first) | {"host": "vllm"}
    for name in ("step_time", "step_time_error"):
        del start["config"]["deployment"][name]
    measured = on_l4 / "measured.steps.jsonl"
    measured.write_text(json.dumps(start) + "\n" + rest)
    told = json.loads(call("whatif", measured, "--set", "max_num_seqs=8", "--json", cwd=on_l4).stdout)
    assert told["prediction"] is None
    assert all(each["low"] is None for each in told["variants"][0]["figures"])
    assert told["variants"][0]["figures"][0]["uncertainty"] is not None
    decisions = told["self_check"]["decisions"]
    assert decisions["first_difference"] is None
    assert decisions["equal"] == decisions["steps"] > 100
    shown = call("whatif", measured, "--set", "max_num_seqs=8", cwd=on_l4).stdout
    assert "check's error" in shown
    assert f"decisions: {decisions['steps']:,} of {decisions['steps']:,} steps are as recorded" in shown


def test_the_line_that_ran_is_the_run_as_it_was(on_l4: Path) -> None:
    told = json.loads(call("whatif", "l4", "--serve", LINE, "--json", cwd=on_l4).stdout)
    (variant,) = told["variants"]
    assert {each["change"] for each in variant["figures"]} <= {0.0, None}


def test_a_line_with_limits_is_as_the_limits_set(on_l4: Path) -> None:
    asked = ("--serve", f"{LINE} --max-num-seqs 8", "--set", "max_num_seqs=8")
    told = json.loads(call("whatif", "l4", *asked, "--json", cwd=on_l4).stdout)
    first, second = (figures(variant) for variant in told["variants"])
    assert first == second


MANIFEST = """apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 2
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.33.0
        env: [{name: NCCL_ALGO, value: Tree}]
        args: [llama-3.1-8b, --max-model-len=8192]
"""


def test_a_manifest_is_asked_about_on_the_gpu_that_it_names(on_l4: Path) -> None:
    (on_l4 / "h100.yaml").write_text(MANIFEST)
    asked = ("--serve", "h100.yaml", "--set", "gpu=h100")
    told = json.loads(call("whatif", "l4", *asked, "--json", cwd=on_l4).stdout)
    by_setting, by_manifest = told["variants"]
    assert figures(by_manifest) == figures(by_setting)
    notes = by_manifest["notes"]
    assert "gpu h100: nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3" in notes
    assert any(note.startswith("replicas 2: not taken; a trace is of one engine") for note in notes)
    assert any(note.startswith("ignored: NCCL_ALGO=Tree") for note in notes)
    assert all(not note.startswith(("gpu ", "replicas ")) for note in by_setting["notes"])
    typed = json.loads(call("whatif", "l4", "--serve", "h100.yaml", "--gpu", "l4", "--json", cwd=on_l4).stdout)
    assert {each["change"] for each in typed["variants"][0]["figures"]} <= {0.0, None}


def test_a_manifest_with_a_gpu_that_is_not_known_is_refused_until_somebody_says_one(on_l4: Path) -> None:
    (on_l4 / "unknown.yaml").write_text(MANIFEST.replace("NVIDIA-H100-80GB-HBM3", "NVIDIA-Unheard-Of"))
    call("whatif", "l4", "--serve", "unknown.yaml", cwd=on_l4).refused("NVIDIA-Unheard-Of", "--gpu names one of")
    assert call("whatif", "l4", "--serve", "unknown.yaml", "--gpu", "l4", cwd=on_l4).code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpu", "h101"), "use one of: v100"),
        (("--serve", "vllm serve nobody/nothing"), "is not known by name"),
        (("--serve", f"{LINE} -dp 2"), "data_parallel_size"),
        (("--serve", "ls -l"), "vllm serve"),
    ],
)
def test_a_deployment_that_is_not_modelled(arguments: tuple[str, ...], said: str, on_l4: Path) -> None:
    call("whatif", "l4", *arguments, cwd=on_l4).refused(said)


def test_a_trace_of_an_unknown_machine_tells_nothing_of_other_gpus(on_l4: Path) -> None:
    (path,) = (on_l4 / "l4").glob("*.steps.jsonl")
    first, _, rest = path.read_text().partition("\n")
    other = on_l4 / "cpu.steps.jsonl"
    other.write_text(json.dumps(json.loads(first) | {"gpu": "cpu"}) + "\n" + rest)
    call("whatif", other, "--gpu", "h100", cwd=on_l4).refused("ran on 'cpu'", "not modelled")


@pytest.mark.parametrize(
    ("line", "setting", "words"),
    [
        ("--kv-cache-dtype fp8", "kv_cache_dtype=fp8", ("--kv-cache-dtype", "fp8")),
        ("-tp 4", "tensor_parallel_size=4", ("--tensor-parallel-size", "4")),
        ("--enforce-eager", "enforce_eager=true", ("--enforce-eager",)),
        ("--gpu-memory-utilization 0.95", "gpu_memory_utilization=0.95", ("--gpu-memory-utilization", "0.95")),
    ],
)
def test_a_change_of_the_deployment_is_what_a_run_with_it_reports(
    line: str, setting: str, words: tuple[str, ...], on_l4: Path
) -> None:
    """The same by a whole line as by the setting."""
    asked = ("--serve", f"{LINE} {line}", "--set", setting)
    told = json.loads(call("whatif", "l4", *asked, "--json", cwd=on_l4).stdout)
    happened = json.loads(call("run", "chat", *MODELLED, "--gpu", "l4", *words, "--json", cwd=on_l4).stdout)
    by_setting, by_line = (figures(variant) for variant in told["variants"])
    assert by_line == by_setting
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        assert by_setting[f"{name}.mean"] == pytest.approx(happened[name]["mean"], rel=1e-3)
    assert told["variants"][0]["serve_flags"] == list(words)
    assert any("KV blocks instead of" in each for each in told["variants"][0]["notes"])


def test_memory_that_nobody_planned_goes_along_to_another_deployment(on_l4: Path) -> None:
    """The recorded engine had a thousand blocks more than planned: so has one whose blocks have half the size."""
    (path,) = (on_l4 / "l4").glob("*.steps.jsonl")
    first, _, rest = path.read_text().partition("\n")
    start = json.loads(first)
    planned = start["config"]["cache"]["num_gpu_blocks"]
    start["config"]["cache"]["num_gpu_blocks"] += 1000
    more = on_l4 / "more.steps.jsonl"
    more.write_text(json.dumps(start) + "\n" + rest)
    told = json.loads(
        call("whatif", more, "--set", "kv_cache_dtype=fp8", "max_num_seqs=100", "--json", cwd=on_l4).stdout
    )
    fp8, limit = ("\n".join(variant["notes"]) for variant in told["variants"])
    assert f"KV blocks instead of {planned + 1000:,}, as planned for llama-3.1-8b on l4" in fp8
    blocks = int(fp8.partition(" KV blocks instead")[0].rpartition("\n")[2].replace(",", ""))
    assert blocks == pytest.approx(2 * (planned + 1000), abs=2)
    assert "GiB more on each GPU, as the recorded engine had" in fp8
    assert "GiB more on each GPU" in limit


def test_a_trace_that_keeps_no_flags_is_read_by_what_was_settled(on_l4: Path) -> None:
    """As of an older version, or of vLLM: its limits count as given."""
    (path,) = (on_l4 / "l4").glob("*.steps.jsonl")
    first, _, rest = path.read_text().partition("\n")
    start = json.loads(first)
    del start["config"]["asked"]
    older = on_l4 / "older.steps.jsonl"
    older.write_text(json.dumps(start) + "\n" + rest)
    asked = ("--set", "kv_cache_dtype=fp8", "--json")
    one, other = (json.loads(call("whatif", trace, *asked, cwd=on_l4).stdout) for trace in ("l4", older))
    assert figures(one["variants"][0]) == figures(other["variants"][0])


def test_what_the_trace_does_not_say_can_be_told(on_l4: Path) -> None:
    (path,) = (on_l4 / "l4").glob("*.steps.jsonl")
    first, _, rest = path.read_text().partition("\n")
    start = json.loads(first) | {"gpu": "NVIDIA Unheard-of", "model": "/models/ours"}
    del start["config"]["asked"]
    other = on_l4 / "other.steps.jsonl"
    other.write_text(json.dumps(start) + "\n" + rest)
    change = ("--set", "tensor_parallel_size=4")
    call("whatif", other, *change, cwd=on_l4).refused("NVIDIA Unheard-of", "--recorded (vllm serve MODEL ...)")
    call("whatif", other, *change, "--recorded-gpu", "l4", cwd=on_l4).refused("/models/ours")
    assert call("whatif", other, "--set", "max_num_seqs=8", cwd=on_l4).code == 0, "a limit needs no deployment"
    told = json.loads(
        call("whatif", other, *change, "--recorded", LINE, "--recorded-gpu", "l4", "--json", cwd=on_l4).stdout
    )
    known = json.loads(call("whatif", "l4", *change, "--json", cwd=on_l4).stdout)
    assert figures(told["variants"][0]) == figures(known["variants"][0])


def test_the_gpu_it_ran_on_changes_nothing(on_l4: Path) -> None:
    told = json.loads(call("whatif", "l4", "--gpu", "l4", "--json", cwd=on_l4).stdout)
    assert {each["change"] for each in told["variants"][0]["figures"]} <= {0.0, None}


def test_what_vllm_would_not_start_with_is_refused(folder: Path) -> None:
    asked = call("whatif", "trace", "--set", "num_gpu_blocks_override=2", cwd=folder)
    asked.refused("num_gpu_blocks_override", "vLLM would not start", "give at least")


def test_what_serves_nobody_is_refused_and_what_serves_some_is_not_compared(folder: Path) -> None:
    call("whatif", "trace", "--set", "max_model_len=2", cwd=folder).refused("serves none of the requests")
    told = json.loads(call("whatif", "trace", "--set", "max_model_len=300", "--json", cwd=folder).stdout)
    (variant,) = told["variants"]
    assert variant["refused"] > 0
    assert {each["change"] for each in variant["figures"]} == {None}
    assert variant["serve_flags"] == []


def test_steps_larger_than_the_trace_has_follow_the_model(tmp_path: Path) -> None:
    """Two requests at a time tell nothing of twelve: the trace's own deployment is modelled, and decides there."""
    flags = ("random", "--num-prompts", "24", "--input-len", "900", "--output-len", "40", "--advice", "none")
    few = ("--max-num-seqs", "2", "--max-num-batched-tokens", "256", "--max-model-len", "8192")
    assert call("run", *flags, *few, "--trace", "trace", cwd=tmp_path).code == 0
    many = "max_num_seqs=12,max_num_batched_tokens=4096"
    told = json.loads(call("whatif", "trace", "--set", many, "--json", cwd=tmp_path).stdout)
    asked = ("--max-num-seqs", "12", "--max-num-batched-tokens", "4096", "--max-model-len", "8192")
    happened = json.loads(call("run", *flags, *asked, "--json", cwd=tmp_path).stdout)
    then = {each["name"]: each["variant"] for each in told["variants"][0]["figures"]}
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"):
        assert then[f"{name}.mean"] == pytest.approx(happened[name]["mean"], rel=0.05)
    assert told["fit"]["terms_of"] == "llama-3.1-8b on h100"
    assert any("steps larger than those fitted" in note for note in told["variants"][0]["notes"])
