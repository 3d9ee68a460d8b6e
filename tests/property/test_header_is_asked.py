"""What a header says of machines, links, replicas and drafts is what step times, routers and dice were asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenyard import Deployment
from tokenyard.deploy import spec
from tokenyard.deploy.spec import ResolvedDeployment
from tokenyard.errors import TokenyardError
from tokenyard.models.gpus import GPUS
from tokenyard.steptime.formula import gpus_together
from tokenyard.steptime.load import load_latency

MODELS = ("qwen3-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "qwen3.5-35b-a3b")
LINES = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "gpu": st.sampled_from(("h200", "gb200", "l40s", "b200", "mi300x")),
        "tensor_parallel_size": st.sampled_from((1, 2, 4, 8)),
        "pipeline_parallel_size": st.sampled_from((1, 1, 2)),
        "data_parallel_size": st.sampled_from((1, 1, 2, 8)),
        "nnodes": st.sampled_from((1, 2, 4)),
        "enable_expert_parallel": st.booleans(),
        "enforce_eager": st.booleans(),
        "kv_cache_dtype": st.sampled_from(("auto", "fp8")),
        "replicas": st.sampled_from((None, 2, 3)),
        "vllm_version": st.sampled_from(("0.22", "0.33", "0.14", "0.41")),
        "speculative_config": st.sampled_from(
            (None, '{"method": "ngram", "num_speculative_tokens": 3}', '{"method": "mtp", "num_speculative_tokens": 2}')
        ),
        "acceptance_rates": st.sampled_from((None, "0.5")),
    }
)


def _resolved(given: dict[str, Any]) -> tuple[ResolvedDeployment, dict[str, Any]] | None:
    """The deployment, and what the model of step times was asked for; None where it would not start."""
    asked: dict[str, Any] = {}
    load = load_latency

    def watched(latency: str, **of: Any) -> Any:
        asked.update(of)
        return load(latency, **of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spec, "load_latency", watched)
        try:
            return Deployment(**{name: value for name, value in given.items() if value}).resolve(), asked
        except TokenyardError:
            return None


@settings(max_examples=150, deadline=None)
@given(LINES)
def test_the_header_says_what_was_asked(line: dict[str, Any]) -> None:
    found = _resolved(line)
    if found is None:
        return
    resolved, asked = found
    header, settled = resolved.header, resolved.settled
    said = {each.name: each for each in header.assumed}
    assert asked["tensor_parallel_size"] == header.tensor_parallel_size
    assert asked["pipeline_parallel_size"] == header.pipeline_parallel_size
    assert asked["data_parallel_size"] == (header.data_parallel_size if settled.steps_together else 1)
    assert asked["enable_expert_parallel"] == header.enable_expert_parallel
    assert asked["kv_cache_dtype"] == header.kv_dtype
    assert asked["async_scheduling"] == header.async_scheduling
    assert asked["version"] == header.vllm_version
    assert asked["enforce_eager"] is bool(line["enforce_eager"] or settled.hardware.enforce_eager)
    gpus = asked["tensor_parallel_size"] * asked["pipeline_parallel_size"] * asked["data_parallel_size"]
    together = gpus_together(GPUS[line["gpu"]], asked["gpus_per_machine"])
    machines = -(-gpus // together)
    if machines > 1:
        assert said["machines"].value == f"{machines} of {together} GPUs"
    else:
        assert "machines" not in said or said["machines"].value.startswith("one NVLink domain")
    if line["nnodes"] > 1:
        assert asked["gpus_per_machine"] == settled.num_gpus // line["nnodes"]
    _check_drafts(resolved, asked, said)
    replicas = None if resolved.autoscaling is None else (resolved.autoscaling.least, resolved.autoscaling.most)
    assert replicas == (None if line["replicas"] is None else (line["replicas"],) * 2)
    is_known = line["vllm_version"] in ("0.22", "0.33")
    assert ("vllm-version" in said) is not is_known


def _check_drafts(resolved: ResolvedDeployment, asked: dict[str, Any], said: dict[str, Any]) -> None:
    speculation = resolved.speculation
    if speculation is None:
        assert asked["speculative"] is None
        assert not {"drafting", "acceptance-rates"} & said.keys()
        return
    assert asked["speculative"].num_speculative_tokens == speculation.config.num_speculative_tokens
    assert "drafting" in said
    given = resolved.settings.launch.asked.says(("acceptance_rates",))
    assert ("acceptance-rates" in said) is not given
    if not given:
        assert said["acceptance-rates"].value in (str(speculation.acceptance[0]), speculation.acceptance[0])
