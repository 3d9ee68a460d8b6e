"""AMD's GPUs and several machines: the table of docs/deployments.md, and what has to be so of any such table."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenyard import Deployment
from tokenyard.models.gpus import named_gpu
from tokenyard.steptime.constants import shipped_constants

SCRIPTS = Path(__file__).parents[3] / "lab"
sys.path.insert(0, str(SCRIPTS))
fit_gpu: Any = pytest.importorskip("fit_gpu")
machines: Any = pytest.importorskip("machines")
ROWS = machines.machines()
V3 = "deepseek-ai/DeepSeek-V3"


@cache
def of(gpu: str, serve: str) -> Any:
    return machines.Machine(gpu=gpu, serve=serve)


def links(row: Any, shape: Any) -> float:
    return float(row.terms(shape)["links"])


@pytest.mark.slow
def test_there_are_more_than_twenty_with_amd_and_several_machines() -> None:
    amd = [row for row in ROWS if row.gpu.startswith("mi")]
    many = [row for row in ROWS if row.num_gpus > row.resolved.settled.gpu.gpus_per_machine]
    assert len(ROWS) >= 20
    assert {row.gpu for row in amd} == {"mi300x", "mi325x", "mi355x"}
    assert len(amd) >= 8
    assert len(many) >= 10


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.gpu} {row.serve}")
def test_memory_and_steps_of_each(row: Any) -> None:
    settled, header = row.resolved.settled, row.resolved.header
    room = settled.gpu.memory_bytes * settled.hardware.gpu_memory_utilization
    parts = sum(part.likely for part in settled.memory_parts()) + settled.kv_bytes
    assert 0.97 * room < parts <= room  # all of it is given to something
    whole = settled.model.weight_bytes()
    held = settled.weight_bytes * row.num_gpus
    assert held >= 0.99 * whole  # no part of the model is lost between GPUs
    assert header.kv_tokens >= settled.plan.max_model_len
    decode, prompt = machines.decodes(), machines.prompt()
    read = settled.model.num_active_parameters * settled.model.weight_format.bits / 8 / row.num_gpus
    assert row.seconds(decode) > read / settled.gpu.memory_bandwidth  # weights of a token are read once at least
    assert 0 <= links(row, decode) < row.seconds(decode)
    assert (links(row, prompt) == 0) == (row.num_gpus == 1)
    known = row.latency.known_error()
    assert known.tpot.low < 0.8
    assert known.tpot.high > 1.25  # what was not measured is said to be known badly


def test_the_header_says_which_gpus_were_taken_for_joined() -> None:
    said = {
        (row.gpu, row.num_gpus): next((each.value for each in row.resolved.assumed if each.name == "machines"), None)
        for row in ROWS
    }
    assert said["h100", 16] == "2 of 8 GPUs"
    assert said["mi300x", 16] == "2 of 8 GPUs"
    assert said["gb200", 16] == said["gb200", 72] == "one NVLink domain of 72 GPUs"
    factors = {row.gpu for row in ROWS if any(each.name.startswith("step times on") for each in row.resolved.assumed)}
    assert factors == {"mi300x", "mi325x"}
    assert said["mi300x", 8] is said["mi300x", 1] is said["l40s", 8] is None


@pytest.mark.parametrize("shape", [machines.decodes(), machines.prompt()], ids=["decodes", "prompt"])
def test_what_crosses_a_network_costs_more(shape: Any) -> None:
    network, inside = of("h100", f"{V3} -tp 16 --nnodes 2"), of("gb200", f"{V3} -tp 16")
    staged = of("h100", f"{V3} -tp 8 -pp 2 --nnodes 2")
    assert links(network, shape) > 1.3 * links(inside, shape)  # a domain of 72 has no network in it
    assert links(network, shape) > 1.3 * links(staged, shape)  # stages tell each other once, layers twice each
    apart = of("h100", f"{V3} -tp 16 --nnodes 4")
    assert links(apart, shape) > links(network, shape)  # four machines of four
    shared = "-dp 16 --enable-expert-parallel --max-model-len 65536"
    assert links(of("h100", f"{V3} {shared}"), shape) > links(of("gb200", f"{V3} {shared}"), shape)
    few, all_of_it = of("gb200", f"{V3} -dp 64 --enable-expert-parallel"), of("gb200", f"{V3} -dp 128 -ep")
    assert links(all_of_it, shape) > links(few, shape)  # 128 are two domains


def test_a_network_of_ones_own_is_heeded(tmp_path: Path) -> None:
    """Half the port, or one as good as the links: H100's figures otherwise."""
    sheet = 'memory = 79.19\nbandwidth = 3350\nbfloat16 = 989\npcie = 64\nlink = 450\ngeneration = "hopper"\n'
    costs = []
    for port in (25, 50, 450):
        file = tmp_path / f"port{port}.toml"
        file.write_text(f'{sheet}capability = "9.0"\nnetwork = {port}\n')
        costs.append(links(of(str(file), f"{V3} -tp 16 --nnodes 2"), machines.prompt()))
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > 1.15 * costs[1]
    assert costs[1] > 1.15 * costs[2]


def test_stages_and_experts_share_out_what_they_should() -> None:
    cut, staged = of("h100", f"{V3} -tp 16 --nnodes 2"), of("h100", f"{V3} -tp 8 -pp 2 --nnodes 2")
    whole = of("h100", f"{V3} -tp 16 --nnodes 2 --enable-expert-parallel")
    ranks = of("h100", f"{V3} -dp 16 --enable-expert-parallel --max-model-len 65536")
    # Latent KV is on every GPU of a tensor-parallel group, and on those of one stage alone.
    assert staged.resolved.header.kv_tokens > 1.6 * cut.resolved.header.kv_tokens
    # 256 experts on 16 GPUs are as many bytes whole as cut; attention is whole on every data-parallel rank.
    assert whole.resolved.header.weight_gib == pytest.approx(cut.resolved.header.weight_gib, rel=0.01)
    assert ranks.resolved.header.weight_gib > 1.2 * cut.resolved.header.weight_gib


def test_more_memory_is_more_kv_and_a_clouds_machine_is_its_gpu() -> None:
    serve = "deepseek-ai/DeepSeek-R1 -tp 8"
    kv = [of(gpu, serve).resolved.header.kv_tokens for gpu in ("mi300x", "mi325x", "mi355x")]
    assert kv == sorted(kv)
    assert kv[0] < kv[-1]
    seconds = [of(gpu, serve).seconds(machines.decodes()) for gpu in ("mi300x", "mi325x", "mi355x")]
    assert seconds == sorted(seconds, reverse=True)
    theirs, ours = of("a3-highgpu-8g", f"{V3} -tp 16 --nnodes 2"), of("h100", f"{V3} -tp 16 --nnodes 2")
    assert theirs.seconds(machines.decodes()) == ours.seconds(machines.decodes())


def test_what_amd_publishes_lies_within_the_stated_range() -> None:
    """Factors were fitted to the latencies; nothing was to the throughputs."""
    found = [each.predicted(shipped_constants()) / each.seconds for each in fit_gpu.latencies()]
    assert len(found) == 32
    off = np.array(found) - 1
    assert np.median(abs(off)) < 0.05
    assert np.quantile(abs(off), 0.9) < 0.15
    held = [machines.in_range(*each) for each in zip(fit_gpu.latencies(), found, strict=True)]
    rates = [each.predicted() / each.tokens_per_second for each in fit_gpu.throughputs()]
    held += [machines.in_range(*each) for each in zip(fit_gpu.throughputs(), rates, strict=True)]
    assert sum(held) >= 0.9 * len(held)
    assert np.median(abs(np.array(rates) - 1)) < 0.3


def test_experts_on_several_machines_bring_what_vllm_tells_of() -> None:
    """1,500 to 2,200 tokens per second and H200 over InfiniBand (vLLM's blog, December 2025)."""
    rates = {(gpus, count): machines.wide(gpus, count) for gpus in (16, 32) for count in (128, 256)}
    assert all(1_000 < rate < 3_300 for rate in rates.values())  # within 1.5 times of it, either way
    assert machines.wide(8, 256) > rates[16, 256] > rates[32, 256]  # more of it crosses the network


@pytest.mark.slow
def test_a_model_left_out_is_nearer_with_factors_than_without() -> None:
    points = [each for each in fit_gpu.latencies() if each.batch in (1, 8, 64)]
    model = "llama-3.1-405b-fp8"
    others, own = ([each for each in points if (each.model == model) is is_it] for is_it in (False, True))
    factors = fit_gpu.fitted(others, "cdna3")
    with_it = np.median(abs(fit_gpu.errors(own, fit_gpu.with_factors("cdna3", factors))))
    without = np.median(abs(fit_gpu.errors(own, fit_gpu.with_factors("cdna3", {}))))
    assert with_it < 0.6 * without


def test_factors_of_a_generation_say_nothing_of_others() -> None:
    constants, spec = shipped_constants(), Deployment(model="llama-3.1-8b", gpu="h100").resolve().settled.model
    plain = fit_gpu.with_factors("cdna3", {})
    for gpu in ("h100", "b200", "mi355x"):
        assert constants.of(spec, named_gpu(gpu)) == plain.of(spec, named_gpu(gpu))
    for gpu in ("mi300x", "mi325x"):
        assert constants.of(spec, named_gpu(gpu))["memory_16"] < plain.of(spec, named_gpu(gpu))["memory_16"]
        assert not constants.measured_gpu(named_gpu(gpu))  # the range stays that of a GPU that was not measured
