"""``tokenyard whatif`` as a user calls it: a recorded run, what cannot be asked, and where nobody can be asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.command import call

from tokenyard.explain.render.units import milliseconds
from tokenyard.kv.sizing.gpus import GPUS
from tokenyard.models.named import MODELS
from tokenyard.sim.latency.steptime.known_error import known_error

FLAGS = ("--limit", "6", "--rate-scale", "30", "--num-gpu-blocks-override", "900", "--max-num-seqs", "2")
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


def test_the_tables(folder: Path) -> None:
    shown = call("whatif", "trace", "--set", "max_num_seqs=4", "--policy", "continuum-ttl", cwd=folder)
    assert shown.code == 0
    assert "The run as it was, replayed" in shown.stdout
    assert "With max_num_seqs=4" in shown.stdout
    assert "With scheduling_policy=continuum-ttl" in shown.stdout
    assert "all 1," in shown.stdout or "steps are the same" in shown.stdout


def test_a_flag_given_twice_asks_for_both(folder: Path) -> None:
    told = json.loads(
        call("whatif", "trace", "--set", "max_num_seqs=4", "--set", "max_num_seqs=3", "--json", cwd=folder).stdout
    )
    assert [each["name"] for each in told["variants"]] == ["max_num_seqs=4", "max_num_seqs=3"]


def test_without_a_question_the_check_is_shown(folder: Path) -> None:
    shown = call("whatif", "trace", cwd=folder)
    assert shown.code == 0
    assert "With " not in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "nothing=1"), "use one of: async_scheduling"),
        (("--set", "max_num_seqs=x"), "give a whole number"),
        (("--policy", "nobody.py:Nothing"), "nobody.py"),
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
    "20",
    "--rate-scale",
    "8",
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
    known = known_error(MODELS["llama-3.1-8b"], GPUS["a10"])
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
    own = json.loads(call("whatif", "l4", "--set", "max_num_seqs=8", "--json", cwd=on_l4).stdout)
    assert all(each["low"] is None and each["high"] is None for each in own["variants"][0]["figures"])


def test_the_line_that_ran_is_the_run_as_it_was(on_l4: Path) -> None:
    told = json.loads(call("whatif", "l4", "--serve", LINE, "--json", cwd=on_l4).stdout)
    (variant,) = told["variants"]
    assert {each["change"] for each in variant["figures"]} <= {0.0, None}


def test_a_line_with_limits_is_as_the_limits_set(on_l4: Path) -> None:
    asked = ("--serve", f"{LINE} --max-num-seqs 8", "--set", "max_num_seqs=8")
    told = json.loads(call("whatif", "l4", *asked, "--json", cwd=on_l4).stdout)
    first, second = (figures(variant) for variant in told["variants"])
    assert first == second


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpu", "h101"), "use one of: a10"),
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
    assert told["fit"]["leans_on"] == "llama-3.1-8b on h100"
    assert "steps larger than the trace has" in told["variants"][0]["notes"][-1]
