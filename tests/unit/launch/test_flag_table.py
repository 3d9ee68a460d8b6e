"""The table of flags covers what vLLM has, no more and no less, and the page is made from it."""

from __future__ import annotations

import json
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import generate_vllm_flags
from tokenyard.cli.support.flag_table import setting_names
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.deploy.vllm_serve.flags import VERSIONS, FlagEffect, FlagKind, flag_table, recorded_flags
from tokenyard.errors import ConfigError

ROOT = Path(__file__).parents[3]
VLLM = ROOT / ".venv-vllm" / "bin" / "python"
CLASSES = ("used", "no-effect", "not-modelled")


def said() -> dict[str, dict[str, object]]:
    return tomllib.loads(files("tokenyard.deploy.vllm_serve").joinpath("flags.toml").read_text())


def test_every_recorded_flag_has_one_class_and_no_other_flag_has() -> None:
    named = [name for effect in CLASSES for name in said()[effect]]
    recorded = {name for version in VERSIONS for name in recorded_flags(version)}
    assert len(named) == len(set(named))
    assert set(named) == recorded
    assert len(recorded_flags("0.33")) >= 256


def test_what_is_said_besides_is_of_flags_that_exist() -> None:
    assert set(said()["neutral"]) <= set(said()["not-modelled"])
    assert not set(said()["earlier"]) & {name for version in VERSIONS for name in recorded_flags(version)}
    assert all(str(why).strip() for effect in CLASSES for why in said()[effect].values())


def test_every_used_flag_is_a_flag_of_ours() -> None:
    used = {flag.field for flag in flag_table() if flag.effect is FlagEffect.USED}
    assert used <= setting_names(RunCommand)


@pytest.mark.parametrize(
    ("word", "name", "is_off"),
    [
        ("-tp", "tensor-parallel-size", False),
        ("-pp", "pipeline-parallel-size", False),
        ("-dp", "data-parallel-size", False),
        ("-dcp", "decode-context-parallel-size", False),
        ("-cc", "compilation-config", False),
        ("-sc", "speculative-config", False),
        ("-q", "quantization", False),
        ("-ep", "enable-expert-parallel", False),
        ("--max_num_seqs", "max-num-seqs", False),
        ("--no-enable-prefix-caching", "enable-prefix-caching", True),
        ("--disable-log-requests", "enable-log-requests", True),
        ("--device-memory-utilization", "gpu-memory-utilization", False),
        ("--tensor-parallel", "tensor-parallel-size", False),
    ],
)
def test_names(word: str, name: str, is_off: bool) -> None:
    found = flag_table().named(word)
    assert found is not None
    assert (found.flag.name, found.is_off) == (name, is_off)


def test_what_names_no_flag() -> None:
    table = flag_table()
    for word in ("--", "-x", "--no-such-flag", "--tensor-parallel-sizes"):
        assert table.named(word) is None
    with pytest.raises(ConfigError, match="option = '--max-num': is ambiguous: it could be --max-num-active-seqs, "):
        table.named("--max-num")
    assert table.named("--tensor-parallel", prefixes=False) is None


def test_values_that_change_nothing_are_of_flags_with_values() -> None:
    for flag in flag_table():
        if flag.neutral:
            assert flag.kind.has_value
        if flag.kind is FlagKind.PAIR and flag.versions:
            assert flag.off_names


def test_the_page_has_every_flag() -> None:
    page = generate_vllm_flags.document()
    assert all(f"`--{name}`" in page for name in recorded_flags("0.33"))


@pytest.mark.slow
@pytest.mark.skipif(not VLLM.exists(), reason="no .venv-vllm: scripts/vllm_env.sh builds it")
def test_vllm_still_says_what_was_recorded() -> None:
    code = "import json, record_vllm_flags as r; print(json.dumps(r.recorded_flags()))"
    done = subprocess.run([VLLM, "-c", code], cwd=ROOT / "lab", capture_output=True, text=True, check=True, timeout=300)
    found = json.loads(done.stdout.splitlines()[-1])
    version = ".".join(found["vllm"].split(".")[:2])
    path = files("tokenyard.deploy.vllm_serve").joinpath("recorded", f"{version}.json")
    assert found == json.loads(path.read_text())
