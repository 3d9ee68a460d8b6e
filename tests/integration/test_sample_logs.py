"""Logs as many systems write them, all of one made-up traffic: each is read truly, or says what it lacks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.workload.load import LoadShape, read_workload
from tokenyard.workload.logs.logged import LogOptions
from tokenyard.workload.record import Workload

REPO = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "lab"))

import generate_log_table  # noqa: E402 - from lab
from sample_logs.catalogue import CATALOGUE, Sample  # noqa: E402
from sample_logs.truth import MODEL, REQUESTS  # noqa: E402

LOGS = REPO / "tests" / "samples" / "logs"


def _read(name: str, sample: Sample) -> Workload:
    options: dict[str, Any] = sample.options
    load = LoadShape(request_rate=options.get("request_rate"))
    return read_workload(LOGS / name, log=LogOptions(model_name=options.get("model_name")), load=load)


def test_every_sample_is_in_the_catalogue() -> None:
    assert {path.name for path in LOGS.iterdir()} == set(CATALOGUE)
    assert len(CATALOGUE) >= 50


@pytest.mark.parametrize("name", [name for name, sample in CATALOGUE.items() if sample.refused])
def test_what_is_no_log_of_requests_is_refused_with_its_cause(name: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        read_workload(LOGS / name)
    assert CATALOGUE[name].refused in str(caught.value)


@pytest.mark.parametrize("name", [name for name, sample in CATALOGUE.items() if not sample.refused])
def test_a_sample_says_the_truth_or_warns(name: str) -> None:
    sample = CATALOGUE[name]
    workload = _read(name, sample)
    assert workload.kind == sample.kind
    assert {each.code for each in workload.remarks if each.warning} == sample.warns
    by_length = {(each.prompt, each.output): each for each in REQUESTS}
    if "requests" not in sample.lacks:
        assert len(workload) == len(REQUESTS)
    prompts = {each.num_prompt_tokens for each in workload}
    outputs = {each.max_tokens for each in workload}
    assert ("prompt" in sample.lacks) == (not prompts <= {each.prompt for each in REQUESTS})
    assert ("output" in sample.lacks) == (not outputs <= {each.output for each in REQUESTS})
    if sample.lacks & {"prompt", "output"}:
        assert sample.warns, "a log that lies is warned of"
        return
    told = [by_length[each.num_prompt_tokens, each.max_tokens] for each in workload]
    if "time" not in sample.lacks:
        origin = told[0].arrival
        for request, truth in zip(workload, told, strict=True):
            assert abs(request.arrival_time - (truth.arrival - origin)) <= sample.resolution + 1e-6


def test_users_sessions_and_priorities_are_read() -> None:
    workload = _read("tenants-priorities.csv", CATALOGUE["tenants-priorities.csv"])
    assert [each.job_id for each in workload] == [f"{each.user}/{each.session}" for each in REQUESTS]
    assert [each.priority for each in workload] == [each.number % 3 for each in REQUESTS]
    last = {each.session: each.number for each in REQUESTS}
    assert [each.is_last_step for each in workload] == [last[each.session] == each.number for each in REQUESTS]


def test_hits_that_a_log_counts_are_the_truth() -> None:
    for name in ("anthropic-messages.jsonl", "openai-responses.jsonl", "langfuse-observations.json", "sglang.jsonl"):
        prompts = [each.prompt for each in _read(name, CATALOGUE[name])]
        hits = [16 * len(prompt.hash_ids()) for prompt in prompts]  # type: ignore[attr-defined]  # all are hashed
        assert hits == [each.cached for each in REQUESTS], name


def test_the_table_of_the_site_has_every_log() -> None:
    table = generate_log_table.document()
    assert [name for name in CATALOGUE if f"| `{name}`" not in table] == []


_SAYS_MODELS = ("csv", "envoy", "jsonl", "langfuse", "litellm", "ollama", "openai", "otel")


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, sample in CATALOGUE.items()
        if sample.kind in _SAYS_MODELS and MODEL in (LOGS / name).read_text() and "model_name" not in sample.options
    ],
)
def test_a_model_that_a_log_says_is_known(name: str) -> None:
    """Else a log of two models would be replayed on one."""
    with pytest.raises(ConfigError, match=f"it has '{MODEL}' "):
        read_workload(LOGS / name, log=LogOptions(model_name="another"))
