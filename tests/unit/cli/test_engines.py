"""``tokenyard run`` with several engines: memory, one report of all, a trace of each; who has no such flag says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenyard.cli.main import main
from tokenyard.explain.report.summary import summarize

FEW = ("random", "--num-prompts", "12", "--input-len", "64", "--output-len", "8", "--request-rate", "400")
DENSE = ("--model", "llama-3.2-1b", "--gpu", "l4", "--max-num-seqs", "1", "--advice", "none", "--json")
SPARSE = ("--model", "qwen3-30b-a3b", "--gpu", "h100", "--advice", "none", "--json")


def run(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert main(["run", *FEW, *flags]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_the_report_is_of_all_ranks_and_has_the_share_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run(capsys, *DENSE, "-dp", "3", "--trace", str(tmp_path))
    ranks = report["ranks"]
    assert [each["rank"] for each in ranks] == [0, 1, 2]
    assert sum(each["requests"] for each in ranks) == report["requests"] == report["requests_finished"] == 12
    assert sum(each["output_tokens"] for each in ranks) == report["output_tokens"] == 12 * 8
    assert sum(each["steps"] for each in ranks) == report["steps"]
    assert sum(each["requests_share"] for each in ranks) == pytest.approx(1)
    assert report["arrivals"] is None
    assert report["header"]["data_parallel_size"] == 3
    assert {each["name"]: each["value"] for each in report["header"]["assumed"]}["api-server-count"] == 3
    traces = [summarize(tmp_path / f"rank-{rank}") for rank in range(3)]
    mean = sum((each.ttft_ms.mean or 0) * (each.requests_finished or 0) for each in traces) / 12
    assert report["ttft_ms"]["mean"] == pytest.approx(mean)
    assert [each["ttft_ms"]["p50"] for each in ranks] == [each.ttft_ms.p50 for each in traces]
    reasons = set().union(*(each.recorded_reasons for each in traces))
    assert reasons
    for reason in reasons:
        held = [each.recorded_reasons[reason] for each in traces if reason in each.recorded_reasons]
        for field in ("steps", "requests", "seconds"):
            total = sum(getattr(each, field) for each in held)
            assert report["recorded_reasons"][reason][field] == pytest.approx(total)
    assert report["unseen_s"] == pytest.approx(sum(each.unseen_s or 0 for each in traces))


def test_one_engine_has_no_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    one, plain = run(capsys, *DENSE, "-dp", "1"), run(capsys, *DENSE)
    assert one["ranks"] == []
    one["header"].pop("used"), plain["header"].pop("used")
    assert one == plain


def test_experts_are_shared_out_over_all_engines_and_these_step_together(capsys: pytest.CaptureFixture[str]) -> None:
    alone, two = run(capsys, *SPARSE), run(capsys, *SPARSE, "-dp", "2", "--enable-expert-parallel")
    assert two["header"]["weight_gib"] < 0.6 * alone["header"]["weight_gib"]
    assert two["header"]["kv_tokens"] > 2 * alone["header"]["kv_tokens"]
    assert two["header"]["enable_expert_parallel"] is True
    by_roofline = run(capsys, *SPARSE, "-dp", "2", "--latency", "roofline")
    assert any("experts count as if each engine had all" in line for line in by_roofline["header"]["ignored"])
    assert two["header"]["ignored"] == []
    assert sum(each["dummy_batches"] for each in two["ranks"]) > 0
    dense = run(capsys, *DENSE, "-dp", "2")
    assert sum(each["dummy_batches"] for each in dense["ranks"]) == 0


def test_the_router_is_the_one_that_was_named(capsys: pytest.CaptureFixture[str]) -> None:
    report = run(capsys, *DENSE, "-dp", "2", "--router", "prefix-affinity", "--random-prefix-len", "64")
    assert sorted(each["requests"] for each in report["ranks"]) == [0, 12]
    report = run(capsys, *DENSE, "-dp", "2", "--router", "round-robin")
    assert [each["requests"] for each in report["ranks"]] == [6, 6]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("run", *FEW, "-dp", "0"), "--data-parallel-size"),
        (("run", *FEW, "-dp", "2", "--api-server-count", "0"), "--api-server-count"),
        (("run", *FEW, "-dp", "2", "--router", "best"), "use one of: vllm, round-robin, least-loaded, prefix-affinity"),
        (("run", *FEW, "-pp", "0"), "--pipeline-parallel-size"),
        (("run", *FEW, "-pp", "33"), "--pipeline-parallel-size"),
        (
            ("run", *FEW, "--nnodes", "2"),
            "vLLM would not start: --nnodes = 2: 1 GPUs (tensor x pipeline x data parallel) do not divide by it",
        ),
        (("run", *FEW, *SPARSE[:4], "-pp", "2", "-dp", "2"), "--pipeline-parallel-size"),
        (("run", *FEW, "-pp", "2", "--num-speculative-tokens", "2"), "drafts in a pipeline are not modelled"),
        (("run", *FEW, "--distributed-executor-backend", "dask"), "use one of: mp, uni, ray"),
        (("run", *FEW, "--enable-lora", "--max-loras", "0"), "--max-loras"),
        (("run", *FEW, *SPARSE[:4], "--model", "deepseek-v2-lite", "--enable-lora"), "give --kv-cache-memory-bytes"),
        (("split", *FEW, "-dp", "2", "--router", "best"), "use one of: vllm, round-robin"),
        (("compare", *FEW, "-dp", "0"), "--data-parallel-size"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(words)) == 2
    assert problem in capsys.readouterr().err


def test_stages_share_weights_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    one = run(capsys, *DENSE)
    two = run(capsys, *DENSE, "-pp", "2", "--nnodes", "2")
    assert two["header"]["pipeline_parallel_size"] == 2
    assert one["header"]["weight_gib"] / 2 < two["header"]["weight_gib"] < one["header"]["weight_gib"]
    assert two["header"]["kv_tokens"] > 1.9 * one["header"]["kv_tokens"]
    assumed = {each["name"]: each["value"] for each in two["header"]["assumed"]}
    assert assumed["pipeline"] == "2 stages"
    assert assumed["machines"] == "2 of 1 GPUs"
    ray = run(capsys, *DENSE, "-pp", "2", "--distributed-executor-backend", "ray", "--vllm-version", "0.22")
    assert two["header"]["async_scheduling"] is ray["header"]["async_scheduling"] is True


@pytest.mark.slow
def test_what_crosses_machines_is_said_and_takes_time(capsys: pytest.CaptureFixture[str]) -> None:
    """``--nnodes`` says what is assumed anyway, or otherwise; a range is wider for a network that was not measured."""
    flags = ("--model", "deepseek-r1", "--gpu", "h200", "--num-prompts", "4", "--advice", "none", "--json")
    one = run(capsys, *flags, "-tp", "8")
    two, same = run(capsys, *flags, "-tp", "16"), run(capsys, *flags, "-tp", "16", "--nnodes", "2")
    assumed = {each["name"]: each for each in two["header"]["assumed"]}
    assert assumed["machines"]["value"] == "2 of 8 GPUs"
    assert "not given (--nnodes)" in assumed["machines"]["why"]
    assert "a network between machines" in two["header"]["step_time_error"]
    assert "a network between machines" not in one["header"]["step_time_error"]
    assert two["tpot_ms"]["mean"] == same["tpot_ms"]["mean"]
    assert all(each["name"] != "machines" for each in one["header"]["assumed"])
    experts = run(capsys, *flags, "-dp", "16", "--enable-expert-parallel", "--nnodes", "2")
    assert "a network between machines" in experts["header"]["step_time_error"]
    joined = run(capsys, *flags[:2], "--gpu", "gb200", *flags[4:], "-tp", "16", "--nnodes", "4")
    assert {each["name"]: each["value"] for each in joined["header"]["assumed"]}["machines"] == (
        "one NVLink domain of 72 GPUs"
    )


def test_stages_overlap_since_decodes_go_round_them(capsys: pytest.CaptureFixture[str]) -> None:
    busy = (*DENSE, "-pp", "4", "--request-rate", "inf")
    older, newer = run(capsys, *busy, "--vllm-version", "0.22"), run(capsys, *busy, "--vllm-version", "0.33")
    assert newer["header"]["async_scheduling"]
    rates = [each["throughput"]["output_tokens_per_s"] for each in (older, newer)]
    assert rates[1] > 1.2 * rates[0]


def test_a_sequence_on_several_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    """Eight GPUs keep eight copies of DeepSeek's latent KV, or an eighth each."""
    flags = ("--model", "deepseek-r1", "--gpu", "h200", "-tp", "8", "--advice", "none", "--json")
    long = (*flags, "--input-len", "100000", "--output-len", "20", "--num-prompts", "8", "--request-rate", "inf")
    copies, parts = run(capsys, *long), run(capsys, *long, "-dcp", "8")
    assert parts["header"]["num_gpu_blocks"] == copies["header"]["num_gpu_blocks"]
    assert parts["header"]["kv_tokens"] == 8 * copies["header"]["kv_tokens"]
    assert parts["peak_kv_use"] < copies["peak_kv_use"] / 7
    assert parts["tpot_ms"]["mean"] < copies["tpot_ms"]["mean"]
    assumed = {each["name"]: each for each in parts["header"]["assumed"]}
    assert "an estimate" in assumed["KV of a sequence"]["why"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("--model", "llama-3.1-8b", "-tp", "8", "-dcp", "2"),
            "vLLM would not start: --decode-context-parallel-size = 2",
        ),
        (("--model", "deepseek-r1", "--gpu", "h200", "-tp", "8", "-dcp", "3"), "8 copies of each KV head"),
        (("--model", "gemma-3-27b", "-tp", "32", "-dcp", "2"), "needs one full-attention group"),
        (
            ("--model", "deepseek-r1", "--gpu", "h200", "-tp", "8", "-dcp", "8", "--num-speculative-tokens", "2"),
            "is not modelled together with speculative decoding",
        ),
        (
            ("--model", "deepseek-r1", "--gpu", "h200", "-tp", "8", "-dcp", "8", "--kv-offloading-size", "9"),
            "is not modelled together with a KV connector",
        ),
    ],
)
def test_a_sequence_that_cannot_be_spread(
    words: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *FEW, *words]) == 2
    assert problem in capsys.readouterr().err


def test_without_graphs_steps_take_longer(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--model", "llama-3.1-8b", "--gpu", "h100", "--advice", "none", "--json")
    graphs, eager = run(capsys, *flags, "--no-enforce-eager"), run(capsys, *flags, "--enforce-eager")
    assert eager["tpot_ms"]["mean"] > 1.1 * graphs["tpot_ms"]["mean"]
    assert "launch of kernels" in {each["name"] for each in eager["header"]["assumed"]}


def test_adapters_take_memory_and_the_time_of_their_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    line = {"prompt_len": 64, "max_tokens": 8}
    lines = [{"request_id": f"r{i}", **line, "lora_name": f"adapter-{i % 3}"} for i in range(6)]
    log.write_text("".join(json.dumps(each) + "\n" for each in lines))
    flags = (*DENSE[:4], "--max-num-seqs", "8", "--advice", "none", "--json")
    assert main(["run", str(log), *flags]) == 2
    assert "give --enable-lora: 'r0' is the first that asks for an adapter" in capsys.readouterr().err
    assert main(["run", str(log), *flags, "--enable-lora", "--max-loras", "2", "--max-lora-rank", "64"]) == 0
    named = json.loads(capsys.readouterr().out)
    assert "lora_slots" in named["recorded_reasons"]
    log.write_text("".join(json.dumps({"request_id": f"r{i}", **line}) + "\n" for i in range(6)))
    assert main(["run", str(log), *flags]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert named["header"]["kv_tokens"] < plain["header"]["kv_tokens"]
    assert named["tpot_ms"]["mean"] > plain["tpot_ms"]["mean"]


def test_a_split_of_several_engines_has_a_report_and_a_trace_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--model", "llama-3.2-1b", "--gpu", "l4", "-dp", "2", "--router", "round-robin", "--trace", str(tmp_path))
    assert main(["split", *FEW, *flags, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    for side in ("prefill", "decode"):
        assert [each["requests"] for each in report[side]["ranks"]] == [6, 6]
        assert report[side]["requests_finished"] == 12
        traces = [summarize(tmp_path / side / f"rank-{rank}") for rank in range(2)]
        assert [each.steps for each in traces] == [each["steps"] for each in report[side]["ranks"]]
    assert report["use"]["kv_bytes"] == 12 * 4 * 16 * 32_768, "four blocks of every prompt"
    assert main(["split", *FEW, *flags]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "The 2 decode engines, whose report this is, with the latencies that clients see" in shown
    assert "The 2 prefill engines and the links" in shown


@pytest.mark.parametrize("model", [DENSE[:4], SPARSE[:4]], ids=["dense", "experts"])
def test_sides_of_equal_sizes_are_what_data_parallelism_says(
    model: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for size in (("-dp", "2"), ("--split", "2+2")):
        assert main(["split", *FEW, *model, *size, "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out))
    for name in ("prefill_engines", "decode_engines", "use"):
        assert told[0][name] == told[1][name]
    for side in ("prefill", "decode"):
        for figure in ("ttft_ms", "tpot_ms", "e2e_ms", "ranks", "steps"):
            assert told[0][side][figure] == told[1][side][figure]


def test_ranks_of_a_split_mixture_of_experts_step_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["split", *FEW, *SPARSE[:4], "-dp", "2", "-ep", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["decode"]["requests_finished"] == 12
    assert sum(each["dummy_batches"] for each in report["prefill"]["ranks"]) > 0


def test_policies_are_compared_on_as_many_engines_as_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {}
    for router in ("round-robin", "prefix-affinity"):
        flags = (
            *DENSE[:6],
            "-dp",
            "2",
            "--router",
            router,
            "--random-prefix-len",
            "64",
            "--policies",
            "fcfs",
            "--json",
        )
        assert main(["compare", *FEW, *flags]) == 0
        comparison = json.loads(capsys.readouterr().out)
        assert comparison["header"]["data_parallel_size"] == 2
        figures[router] = comparison["cells"][0]["metrics"]["completion_s"]["mean"]
    report = run(capsys, *DENSE, "-dp", "2", "--router", "round-robin", "--random-prefix-len", "64")
    assert figures["round-robin"] == pytest.approx(report["e2e_ms"]["mean"] / 1e3)
    assert figures["prefix-affinity"] > 1.5 * figures["round-robin"], "all requests are on one engine"


def test_a_router_without_engines_to_choose_from_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *FEW, *DENSE, "--router", "round-robin"]) == 0
    said = "--router is ignored: without --data-parallel-size or --replicas there is one engine"
    assert said in capsys.readouterr().err
