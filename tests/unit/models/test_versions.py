"""Which versions of vLLM have a class for an architecture, as their registries say, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.planner_answers import recorded

from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import ConfigError
from tokenyard.models.reading.read import (
    dropped_before,
    versions_instead,
    versions_looked_into,
    versions_with_classes,
)
from tokenyard.models.reading.table import ROWS

NEWEST = {
    each["architecture"]
    for each in recorded(Path(__file__).with_name("registry.json.gz"))["architectures"]
    if each["kind"] != "transformers"
}
"""What vLLM 0.33's registry had when every architecture of it was built."""


READ = list(versions_looked_into())


def test_versions_are_known_ones_oldest_first() -> None:
    for name, versions in versions_with_classes().items():
        assert versions == [each for each in READ if each in versions], name
        assert 0 < len(versions) < len(READ), name
    assert not versions_with_classes().keys() & dropped_before().keys()


def test_the_newest_has_what_was_built_of_it() -> None:
    lacking = {name for name, versions in versions_with_classes().items() if READ[-1] not in versions}
    assert not lacking & NEWEST
    assert "BambaForCausalLM" in lacking & ROWS.keys()


def test_a_version_that_was_not_looked_into_is_as_the_newest() -> None:
    assert versions_instead("BambaForCausalLM", "9.99") == ["0.22", "0.23"]
    assert versions_instead("KimiK3ForConditionalGeneration", "9.99") == ()
    assert versions_instead("Nobody", READ[0]) == versions_instead("LlamaForCausalLM", READ[0]) == ()


@pytest.mark.parametrize(
    ("model", "version", "problem"),
    [
        ("bamba-9b", "0.24", r"vllm_version = '0.24': has no class for BambaForCausalLM .*: choose 0\.22 or 0\.23"),
        ("bamba-9b", "0.33", r"choose 0\.22 or 0\.23"),
        ("kimi-k3", "0.22", r"has no class for KimiK3ForConditionalGeneration \(kimi-k3\).* from 0\.27 to 0\.33"),
        ("kimi-k3", "0.26.0", r"vllm_version = '0.26'"),
    ],
)
def test_a_version_without_the_class_is_refused_with_those_that_have_it(model: str, version: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        Deployment(model=model, gpu="b300", tensor_parallel_size=8, vllm_version=version).resolve()
    assert refused.value.field == "vllm_version"


@pytest.mark.parametrize(("model", "version"), [("bamba-9b", "0.23"), ("kimi-k3", "0.27"), ("llama-3.1-8b", "0.22")])
def test_versions_that_have_it_take_it(model: str, version: str) -> None:
    resolved = Deployment(model=model, gpu="b300", tensor_parallel_size=8, vllm_version=version).resolve()
    assert resolved.settled.version == version
