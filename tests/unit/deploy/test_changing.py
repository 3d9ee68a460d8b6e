"""A setting changed in whatever starts vLLM: read back it is the deployment that was wanted, and nothing else moved."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

import tokenyard as ty
from tokenyard.deploy.changing import changed_text, patch
from tokenyard.errors import ConfigError
from tokenyard.questions.writing import written

STARTS = sorted((Path(__file__).parents[2] / "samples/starts").iterdir())
CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "max_num_seqs": st.integers(1, 900),
    "max_num_batched_tokens": st.sampled_from([12288, 16384]),
    "max_model_len": st.integers(1000, 8192) | st.none(),
    "gpu_memory_utilization": st.sampled_from([0.8, 0.85, 0.93]),
    "enable_prefix_caching": st.booleans(),
    "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
    "tensor_parallel_size": st.sampled_from([1, 2, 4]),
}


def meaning(text: str) -> tuple[dict[str, Any], str, str | None]:
    """The flags with their values, GPU and replicas."""
    known = ty.Deployment(text).settings
    return (
        {each.flag.name: each.value for each in known.launch.asked.given},
        known.hardware.gpu,
        known.parallel.replicas_in_words,
    )


@pytest.mark.parametrize("path", STARTS, ids=lambda path: path.name)
def test_what_is_written_reads_back_and_nothing_else_moves(path: Path) -> None:
    text = path.read_text()

    @given(st.fixed_dictionaries({}, optional=CHANGES))
    @settings(max_examples=examples(40), deadline=None)
    def holds(changes: dict[str, Any]) -> None:
        after = changed_text(text, changes)
        flags, *around = meaning(after)
        before, *was = meaning(text)
        for name, value in changes.items():
            before.pop(name.replace("_", "-"), None)
            assert flags.pop(name.replace("_", "-"), None) == value
        assert (flags, around) == (before, was)
        assert re.findall(r"# .*", after) == [each for each in re.findall(r"# .*", text) if each in after]
        kept = [line for line in text.splitlines() if line in after.splitlines()]
        assert [line for line in after.splitlines() if line in kept] == kept  # in the order in which they were
        assert len(kept) >= len(text.splitlines()) - 2 * len(changes)

    holds()


@pytest.mark.parametrize("path", STARTS, ids=lambda path: path.name)
def test_replicas_are_changed_where_the_text_has_them(path: Path) -> None:
    text = path.read_text()
    if re.search(r"replicas: \d|replicaCount", text) is None:
        with pytest.raises(ConfigError, match="has no place in this text"):
            changed_text(text, {"replicas": 5})
        return
    assert ty.Deployment(changed_text(text, {"replicas": 5})).settings.parallel.replicas == 5


def test_gpus_that_are_asked_for_follow() -> None:
    text = next(path for path in STARTS if path.name == "kubernetes.yaml").read_text()
    assert "nvidia.com/gpu: 4" in changed_text(text, {"tensor_parallel_size": 4})


@pytest.mark.skipif(which("patch") is None, reason="patch is not installed")
def test_a_patch_says_why_and_applies(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(next(each for each in STARTS if each.name == "helm.yaml").read_text())
    text = written(str(path), {"max_model_len": 4096}, "diff", ["Requests waited.", "TTFT p90 -40 %"])
    assert text.startswith("# Requests waited.\n# TTFT p90 -40 %\n---")
    (tmp_path / "change.patch").write_text(text)
    subprocess.run(["patch", "-s", str(path), "change.patch"], check=True, cwd=tmp_path)
    assert "maxModelLen: 4096   # tokens" in path.read_text()
    assert written(str(path), {"max_model_len": 2048}, "file", []) == f"{path} is changed\n"
    assert "--max-model-len 2048" in written(str(path), {}, "serve", [])


def test_a_line_has_no_patch() -> None:
    with pytest.raises(ConfigError, match="is for a file"):
        written("vllm serve Qwen/Qwen3-8B", {"max_num_seqs": 9}, "diff", [])
    assert written("vllm serve Qwen/Qwen3-8B", {"max_num_seqs": 9}, "serve", []).endswith("--max-num-seqs 9\n")
    assert patch("a", "x\n", "x\n") == ""
