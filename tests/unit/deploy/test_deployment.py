"""A deployment as a value: read, said by name, changed, resolved, kept."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenyard import ConfigError, Deployment, SchedulerConfig
from tokenyard.cli.main import main
from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.errors import NoStartError, NotModelledError

LINE = "vllm serve Qwen/Qwen3-32B -tp 2 --max-model-len 32768 --api-key sk-very-secret-0123456789"
MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.22.1
          args: ["--model", "Qwen/Qwen3-8B", "--max-num-seqs", "16", "--kv-cache-dtype=fp8"]
          resources: {limits: {nvidia.com/gpu: "1"}}
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}
"""
DRAFTS = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 2}')
FEW: dict[str, Any] = {"num_prompts": 12, "input_len": 300, "output_len": 12, "request_rate": 200.0}
FEW_WORDS = [word for name, value in FEW.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(autouse=True)
def no_trace_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCHED_TRACE_PATH", raising=False)
    monkeypatch.delenv("VLLM_SCHED_TRACE_PATH", raising=False)


def command(*words: str) -> Deployment:
    """What the command line makes of words."""
    flags = parse(["run", "random", *words])
    assert isinstance(flags, RunCommand)
    return Deployment.from_settings(scenario_of(flags).deployment)


@pytest.mark.parametrize(
    ("deployment", "words"),
    [
        (Deployment.from_serve(LINE, gpu="h100"), ["--serve", LINE, "--gpu", "h100"]),
        (Deployment(MANIFEST), ["--serve", MANIFEST]),
        (
            Deployment(model="llama-3.1-8b", gpu="l4", max_num_seqs=3, max_model_len=2048, async_scheduling=False),
            [
                "--model",
                "llama-3.1-8b",
                "--gpu",
                "l4",
                "--max-num-seqs",
                "3",
                "--max-model-len",
                "2048",
                "--no-async-scheduling",
            ],
        ),
        (
            Deployment(model="llama-3.2-1b", gpu="l4", num_gpu_blocks_override=200, num_speculative_tokens=2),
            [
                "--model",
                "llama-3.2-1b",
                "--gpu",
                "l4",
                "--num-gpu-blocks-override",
                "200",
                "--num-speculative-tokens",
                "2",
            ],
        ),
        (
            Deployment(
                model="Qwen/Qwen3-8B",
                gpu="h100",
                speculative_config={"method": "ngram", "num_speculative_tokens": 2},
                vllm_version="0.22",
            ),
            ["--model", "Qwen/Qwen3-8B", "--gpu", "h100", "--vllm-version", "0.22", *DRAFTS],
        ),
    ],
    ids=["line", "manifest", "names", "blocks", "drafts"],
)
def test_figures_are_those_of_the_command_to_the_last_digit(
    deployment: Deployment, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*words) == deployment
    assert main(["run", "random", *FEW_WORDS, *words, "--advice", "none", "--json"]) == 0
    assert json.loads(json.dumps(deployment.replay("random", **FEW).to_dict())) == json.loads(capsys.readouterr().out)


def test_with_is_as_if_it_had_been_given() -> None:
    first = Deployment(model="qwen3-8b", gpu="h100", max_num_seqs=8)
    assert first.with_(kv_cache_dtype="fp8", gpu="l40s") == Deployment(
        model="qwen3-8b", gpu="l40s", max_num_seqs=8, kv_cache_dtype="fp8"
    )
    assert first.with_(max_num_seqs=None) == Deployment(model="qwen3-8b", gpu="h100")
    assert first.with_(async_scheduling=False).resolve().scheduler.async_scheduling is False
    assert first.with_(policy="priority", tp=2).resolve().scheduler.policy == "priority"
    assert first.resolve().scheduler.max_num_seqs == 8, "it has not changed"
    with pytest.raises(AttributeError, match="with_"):
        first.gpu = "l4"


def test_what_it_comes_to() -> None:
    resolved = Deployment(LINE, gpu="h100", vllm_version="0.33").resolve()
    assert resolved.scheduler.max_num_seqs == 1024
    assert resolved.cache.num_gpu_blocks == resolved.plan.num_blocks == resolved.header.num_gpu_blocks
    assert resolved.known_error is not None
    assert resolved.header.step_time_error == resolved.known_error.sentence
    assert {each.name for each in resolved.assumed} >= {"max-num-seqs", "KV blocks"}
    assert "--tensor-parallel-size 2" in resolved.used
    assert resolved.ignored == ()
    assert Deployment(LINE, gpu="h100").resolve() is not resolved


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"max_num_seq": 3}, "max_num_seq = 3: there is no such setting: did you mean max_num_seqs?"),
        ({"zzz": 3}, "zzz = 3: there is no such setting"),
        ({"max_num_seqs": "many"}, "max_num_seqs = 'many': give a whole number"),
        ({"max_num_seqs": 3.5}, "max_num_seqs = '3.5': give a whole number"),
        ({"max_num_seqs": True}, "max_num_seqs = 'true': give a whole number"),
        ({"enforce_eager": 3}, "enforce_eager = 3: give true or false"),
        ({"performance_mode": "fast"}, "performance_mode = 'fast': give one of: balanced, interactivity, throughput"),
        ({"tp": 2, "tensor_parallel_size": 2}, "tensor_parallel_size is given twice"),
        ({"speculative_config": "[1"}, "give a JSON object"),
    ],
)
def test_what_cannot_be_is_said_by_name(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Deployment(**settings)
    assert problem in str(caught.value)
    with pytest.raises(ConfigError):
        Deployment(gpu="h100").with_(**settings)


def test_an_error_is_data() -> None:
    with pytest.raises(ConfigError) as caught:
        Deployment(max_num_seq=3)  # type: ignore[call-arg]
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.code, error.field, error.value) == ("unknown_setting", "max_num_seq", 3)
    assert str(error) == str(caught.value)


def test_flags_that_are_not_modelled_are_refused_by_name_or_listed() -> None:
    with pytest.raises(NotModelledError, match="--enable-cumem-allocator") as caught:
        Deployment(model="qwen3-8b", gpu="h100", enable_cumem_allocator=True).resolve()
    assert caught.value.code == "not_modelled"
    listed = Deployment(model="qwen3-8b", gpu="h100", enable_cumem_allocator=True, ignore_unmodelled=True)
    assert any("--enable-cumem-allocator" in each for each in listed.resolve().ignored)
    assert "ignore_unmodelled=True" in repr(listed)


def test_no_form_of_it_holds_a_secret() -> None:
    for deployment in (
        Deployment(LINE, gpu="h100"),
        Deployment(model="qwen3-8b", gpu="h100", api_key="sk-very-secret-0123456789"),
    ):
        forms = (repr(deployment), str(deployment), deployment.to_json(), pickle.dumps(deployment).decode("latin-1"))
        assert not any("very-secret" in form for form in forms)


@pytest.mark.parametrize(
    "deployment",
    [
        Deployment(),
        Deployment(LINE, gpu="h100", ignore_unmodelled=True),
        Deployment(MANIFEST, max_num_seqs=4),
        Deployment(model="qwen3-8b", gpu="h100", async_scheduling=False, cudagraph_capture_sizes=[1, 2, 4]),
        Deployment(gpu="l4", speculative_config={"method": "ngram", "num_speculative_tokens": 2}, router="round-robin"),
    ],
)
def test_it_can_be_kept(deployment: Deployment) -> None:
    for again in (pickle.loads(pickle.dumps(deployment)), Deployment.from_json(deployment.to_json())):
        assert type(again) is Deployment, "with its questions"
        assert again == deployment
        assert hash(again) == hash(deployment)
        assert again.settings == deployment.settings
        assert repr(again) == repr(deployment)
    assert deployment != "a deployment"


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"deployment": 1, "settings": {"max_num_seq": 3}}', b"\xff"])
def test_json_of_something_else(text: str | bytes) -> None:
    with pytest.raises(ConfigError, match="deployment"):
        Deployment.from_json(text)


def test_people_can_read_it() -> None:
    assert repr(Deployment(gpu="l4", model="qwen3-8b", max_num_seqs=3)) == (
        "Deployment(model='qwen3-8b', gpu='l4', max_num_seqs=3)"
    )
    assert repr(Deployment("vllm serve Qwen/Qwen3-8B -tp 2", gpu="h100")) == (
        "Deployment('vllm serve Qwen/Qwen3-8B --tensor-parallel-size 2', gpu='h100')"
    )
    shown = str(Deployment("vllm serve Qwen/Qwen3-8B -tp 2", gpu="h100"))
    assert "KV blocks" in shown
    assert "assumed" in shown
    assert "vLLM would not start" in str(Deployment(model="llama-3.1-70b", gpu="l4"))


def test_a_file_of_flags_is_the_weakest(tmp_path: Path) -> None:
    file = tmp_path / "vllm.yaml"
    file.write_text("model: Qwen/Qwen3-8B\nmax-num-seqs: 4\nmax-model-len: 4096\n")
    deployment = Deployment(config=file, max_num_seqs=6, gpu="l40s")
    scheduler = deployment.resolve().scheduler
    assert (scheduler.max_num_seqs, scheduler.max_model_len) == (6, 4096)
    assert command("--config", str(file), "--max-num-seqs", "6", "--gpu", "l40s") == deployment


def test_what_a_log_tells_of_memory_holds_for_its_own_deployment_alone() -> None:
    log = "\n".join(
        (
            "INFO 06-01 10:00:00 [utils.py:1] non-default args: {'model': 'Qwen/Qwen3-8B'}",
            "INFO 06-01 10:00:01 [core.py:1] Initializing a V1 LLM engine (v0.22.1) with config: model='Qwen/Qwen3-8B'",
            "INFO 06-01 10:00:09 [gpu_worker.py:1] Available KV cache memory: 50.00 GiB",
        )
    )
    deployment = Deployment(log, gpu="h100")
    assert deployment.settings.hardware.kv_cache_memory_bytes == 50 << 30
    other = deployment.with_(tensor_parallel_size=2)
    assert other.settings.hardware.kv_cache_memory_bytes is None
    assert any("not taken: tensor_parallel_size is given beside it" in each.why for each in other.resolve().assumed)
    assert deployment.with_(scheduling_policy="priority").settings.hardware.kv_cache_memory_bytes == 50 << 30
    assert Deployment.from_json(deployment.to_json()) == deployment


def test_blocks_that_were_typed_are_an_experiment_and_those_of_a_line_are_not() -> None:
    assert (
        Deployment(model="llama-3.2-1b", gpu="l4", num_gpu_blocks_override=50).resolve().scheduler.max_model_len > 800
    )
    with pytest.raises(NoStartError):
        Deployment("vllm serve meta-llama/Llama-3.2-1B --num-gpu-blocks-override 50", gpu="l4").resolve()


def test_typed_blocks_bound_what_is_planned_and_not_what_a_request_may_ask_for() -> None:
    """A request that the pool cannot hold is refused with the blocks that it takes, not cut to what they hold."""
    alone = Deployment(model="llama-3.1-8b", num_gpu_blocks_override=1000).resolve()
    assert alone.settled.plan.max_model_len == alone.header.max_model_len == 999 * 16
    assert alone.settled.scheduling.max_model_len == alone.scheduler.max_model_len == 131_072
    fitted = Deployment(model="llama-3.1-8b", num_gpu_blocks_override=1000, max_model_len=-1).resolve()
    assert fitted.settled.plan.max_model_len == fitted.settled.scheduling.max_model_len == 999 * 16
    again = pickle.loads(pickle.dumps(alone.settled))
    assert again.scheduling == alone.settled.scheduling


@pytest.mark.parametrize("limit", ["max_num_seqs", "max_num_batched_tokens", "max_model_len"])
@pytest.mark.parametrize("value", [0, -7, 2**31])
def test_a_limit_of_a_deployment_has_the_bounds_of_the_scheduler(limit: str, value: int) -> None:
    given: dict[str, Any] = {limit: value}
    with pytest.raises(ConfigError) as made_by_hand:
        SchedulerConfig(**given)
    with pytest.raises(ConfigError) as deployed:
        Deployment(model="llama-3.1-8b", **given).resolve()
    assert (deployed.value.field, deployed.value.fix) == (made_by_hand.value.field, made_by_hand.value.fix)


REFUSED: dict[str, tuple[dict[str, Any], str, object, str, dict[str, int]]] = {
    "length": ({"max_model_len": 200_000}, "max_model_len", 200_000, "give at most 131072", {"longest": 131_072}),
    "seats": (
        {"max_num_seqs": 4096, "max_num_batched_tokens": 1024},
        *("max_num_batched_tokens", 1024, "give 4096 or more, or lower max_num_seqs", {"least": 4096}),
    ),
    "prefill": (
        {"enable_chunked_prefill": False, "max_model_len": 8192, "max_num_batched_tokens": 2048},
        *("max_num_batched_tokens", 2048, "give 8192 or more, or lower max_model_len", {"least": 8192}),
    ),
    "threshold": (
        {"long_prefill_token_threshold": 10**6},
        *("long_prefill_token_threshold", 10**6, "give at most 131072", {"most": 131_072}),
    ),
    "heads": ({"tensor_parallel_size": 3}, "tensor_parallel_size", 3, "must divide the 32 heads", {}),
    "weights": ({"quantization": "awq"}, "quantization", "awq", "leave it out", {}),
    "experts": ({"enable_expert_parallel": True}, "enable_expert_parallel", True, "leave it out", {}),
    "graphs": (
        {"cudagraph_capture_sizes": (1, 2), "max_cudagraph_capture_size": 4},
        *("max_cudagraph_capture_size", 4, "give one of the two", {"largest": 2}),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_keeps_it_from_starting_is_data(case: str) -> None:
    settings, field, value, fix, details = REFUSED[case]
    with pytest.raises(NoStartError) as caught:
        Deployment(**{"model": "llama-3.1-8b", "gpu": "h200", **settings}).resolve()
    error = caught.value
    assert (error.code, error.field, error.value, dict(error.details)) == ("no_start", field, value, details)
    assert error.fix.startswith(fix)
    assert str(error) == f"vLLM would not start: {error.reason}"


def test_a_lack_of_memory_is_data() -> None:
    with pytest.raises(NoStartError) as caught:
        Deployment(model="llama-3.1-70b", gpu="h100").resolve()
    error = caught.value
    assert (error.field, error.value) == ("tensor_parallel_size", 1)
    assert error.fix.startswith("raise tensor_parallel_size to 4, or take a larger GPU; that memory is an estimate")
    assert "§" not in error.fix
    sizes = error.details
    assert set(sizes) == {"weight_bytes", "bytes_to_run", "usable_bytes", "least_tensor_parallel_size"}
    assert int(str(sizes["usable_bytes"])) < int(str(sizes["weight_bytes"])) == pytest.approx(141.1e9, rel=0.01)

    tight: dict[str, Any] = {"model": "llama-3.1-70b", "gpu": "h100", "tensor_parallel_size": 2}
    with pytest.raises(NoStartError) as caught:
        Deployment(**tight, max_model_len=131_072).resolve()
    longest = caught.value.details["longest"]
    assert isinstance(longest, int)
    assert caught.value.field == "max_model_len"
    assert f"give at most {longest}" in caught.value.fix
    Deployment(**tight, max_model_len=longest).resolve()


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}
RESOLVED: dict[str, Deployment] = {
    "line": Deployment(LINE, gpu="h100"),
    "drafts": Deployment(
        "vllm serve Qwen/Qwen3-8B", gpu="h100", speculative_config='{"method": "ngram", "num_speculative_tokens": 2}'
    ),
    "engines": Deployment(
        model="llama-3.2-1b", gpu="l4", data_parallel_size=2, router="least-loaded", kv_offloading_size=4.0
    ),
}


@pytest.mark.parametrize("name", RESOLVED)
@pytest.mark.parametrize("way", COPIES)
def test_a_copy_of_a_resolved_one_is_equal(way: str, name: str) -> None:
    deployment = RESOLVED[name]
    resolved = deployment.resolve()
    for kept in (deployment, resolved):
        again = COPIES[way](kept)
        assert type(again) is type(kept)
        assert again == kept
        assert hash(again) == hash(kept)
        assert str(again) == str(kept)
    assert COPIES[way](resolved) != deployment.with_(max_num_seqs=3).resolve()
    assert COPIES[way](resolved).policy() is not None


@pytest.mark.parametrize("number", [0, 2])
def test_json_of_another_format_is_refused(number: int) -> None:
    text = json.dumps({**json.loads(Deployment(gpu="l4").to_json()), "deployment": number, "news": 3})
    with pytest.raises(ConfigError) as caught:
        Deployment.from_json(text)
    assert (caught.value.field, caught.value.value) == ("deployment", number)
    assert "another format than 1" in caught.value.fix


@pytest.mark.parametrize("text", [None, 3, {"deployment": 1}, Path("deployment.json")])
def test_json_is_a_text(text: Any) -> None:
    with pytest.raises(ConfigError, match=r"give what Deployment\.to_json\(\) wrote, as str or bytes") as caught:
        Deployment.from_json(text)
    assert (caught.value.field, caught.value.value) == ("text", text)


def test_json_may_be_bytes() -> None:
    deployment = Deployment(model="qwen3-8b", gpu="h100")
    assert Deployment.from_json(deployment.to_json().encode()) == deployment


def test_json_of_a_time_when_no_async_scheduling_was_a_setting_of_its_own_is_read() -> None:
    off = Deployment(model="llama-3.1-8b", gpu="h100", async_scheduling=False)
    written = off.to_json()
    older = written.replace('"async_scheduling":false', '"no_async_scheduling":true')
    assert older != written
    assert Deployment.from_json(older) == off
    assert Deployment.from_json(older).resolve().scheduler.async_scheduling is False
