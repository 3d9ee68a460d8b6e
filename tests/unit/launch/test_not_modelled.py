"""What vLLM 0.33 has and a replay has not is refused by its name, wherever a user can ask for it."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.core.config import KVCacheGroup
from tokenyard.core.profiles import DecisionProfile
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.deploy.vllm_serve.flags import FlagEffect, flag_table
from tokenyard.errors import ConfigError, NotModelledError
from tokenyard.parity.replay import replay_vector
from tokenyard.questions.scenario import replay_spec

VECTORS = Path(__file__).resolve().parents[3] / "conformance" / "vectors" / "0.33"
NAMED = re.compile("`([^`]*)`")
DRAFTS = {"method": "eagle3", "model": "some/head", "num_speculative_tokens": 3}


def setup(*flags: str) -> ReplaySpec:
    command = parse(["run", "chat", "--limit", "1", *flags])
    assert isinstance(command, RunCommand)
    return replay_spec(scenario_of(command))


# ---- flags

FLAGS = {
    "HiSparse": ("--attention-config", '{"hisparse_config": {"top_k": 2048}}', "memory and decisions: HiSparse"),
    "bounded replay": ("--no-swa-bounded-replay", None, "windows that are recomputed"),
    "partial hits": ("--prefix-match-unit", "8", "how fine a prefix may match"),
    "retention": ("--prefix-cache-retention-interval", "64", "which blocks of windows and states are kept"),
    "states within a chunk": ("--enable-mamba-shared-prefix-checkpoint", None, "which states are kept"),
    "prefill cadence": ("--prefill-schedule-interval", "4", "prefill in every n-th step only"),
    "active sequences": ("--max-num-active-seqs", "8", "fewer requests than max-num-seqs"),
    "adaptive threshold": ("--long-prefill-token-threshold-adaptive", None, "a threshold that follows the queue"),
    "queued requests": ("--max-num-queued-reqs", "8", "which requests are refused"),
    "queued tokens": ("--max-num-queued-tokens", "8", "which requests are refused"),
    "diffusion": ("--diffusion-config", '{"canvas_length": 32}', "diffusion models"),
    "auxiliary outputs": ("--aux-output-config", '{"enabled": true}', "time and decisions"),
    "one kind of blocks": ("--disable-hybrid-kv-cache-manager", None, "one kind of blocks for all layers"),
    "another scheduler": ("--scheduler-cls", "my.Scheduler", "a scheduler of your own"),
}


@pytest.mark.parametrize(("flag", "value", "why"), FLAGS.values(), ids=list(FLAGS))
def test_flags(flag: str, value: str | None, why: str) -> None:
    keeps = "mamba" in flag
    words = ["--model", "nemotron-h-8b" if keeps else "gpt-oss-20b", *([flag] if value is None else [flag, value])]
    with pytest.raises(NotModelledError, match=why) as caught:
        setup(*words)
    assert str(caught.value).startswith(flag)
    ignored = setup(*words, "--ignore-unmodelled").deployment.ignored
    assert any(each.startswith(flag) for each in ignored)


def test_they_are_flags_of_0_33() -> None:
    known = {f"--{flag.name}": flag for flag in flag_table()}
    known |= {f"--no-{flag.name}": flag for flag in flag_table()}
    assert {flag for flag, *_ in FLAGS.values()} <= known.keys()
    assert all("0.33" in known[flag].versions for flag, *_ in FLAGS.values())


# ---- drafts


@pytest.mark.parametrize("method", ["medusa", "suffix", "mlp_speculator"])
def test_methods_of_drafting(method: str) -> None:
    with pytest.raises(ConfigError, match=rf"speculative_config.method = '{method}': is not modelled"):
        setup("--speculative-config", json.dumps(DRAFTS | {"method": method}))


FIELDS = {
    "num_speculative_tokens_per_batch_size": [[1, 8, 3]],
    "disable_eagle_block_drop": True,
    "disable_lookahead_block_hashes": True,
    "parallel_drafting": True,
    "enable_adaptive_verification": True,
    "max_model_len": 2048,
}


@pytest.mark.parametrize(("name", "value"), FIELDS.items())
def test_fields_of_drafting(name: str, value: Any) -> None:
    text = json.dumps(DRAFTS | {name: value})
    with pytest.raises(NotModelledError, match=rf"speculative_config\.{name} .*\(decisions.*is not modelled"):
        setup("--speculative-config", text)
    ignored = setup("--speculative-config", text, "--ignore-unmodelled").deployment.ignored
    assert any(each.startswith(f"speculative_config.{name} ") and "decisions" in each for each in ignored)


def test_what_only_changes_which_drafts_are_right_is_passed_over() -> None:
    text = json.dumps(DRAFTS | {"disable_eagle_block_drop": False, "draft_sample_method": "greedy"})
    ignored = setup("--speculative-config", text).deployment.ignored
    assert any("draft_sample_method" in each and "--acceptance-rates" in each for each in ignored)


# ---- layers, by the models that have them

ARCHITECTURES = {
    "OpenPanguForCausalLM": "sinks",
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_models_with_other_kinds_of_layers(architecture: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architectures": [architecture]}))
    with pytest.raises(ConfigError, match=rf"architectures = \['{architecture}'\]: is not known"):
        setup("--model", str(path))


@pytest.mark.parametrize("kind", ["hisparse_hot", "rswa", "sink_full_attention"])
def test_groups(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"kind = '{kind}': use one of"):
        KVCacheGroup(kind=kind)  # type: ignore[arg-type]
    with gzip.open(min(VECTORS.glob("*.gz")), "rt") as lines:
        header = json.loads(next(lines))
    header["config"]["groups"] = [{"kind": kind}]
    vector = tmp_path / "x.jsonl"
    vector.write_text(json.dumps(header) + "\n")
    assert replay_vector(vector).unsupported == [f"KV groups: {kind}"]


# ---- the list of all differences

DIFFERENCES = Path(__file__).resolve().parents[3] / "scripts" / "vllm_differences.tsv"
ROWS = [line.split("\t")[1:] for line in DIFFERENCES.read_text(encoding="utf-8").splitlines()[1:]]
WORDS_OF_FATES = (
    "refused; no effect; as 0.22; a setting; done by; so do ours; a kind of group; hashes and limits as 0.33"
)
FATES = tuple(WORDS_OF_FATES.split("; "))


def test_every_difference_has_its_fate_and_every_switch_its_line() -> None:
    switches = {field.name for field in fields(DecisionProfile)} - {"vllm_version"}
    without = [row for row in ROWS if not row[1].startswith(FATES) and not set(NAMED.findall(row[1])) & switches]
    assert not without
    assert switches <= {name for row in ROWS for name in NAMED.findall(row[1])}


def test_flags_that_it_calls_refused_are() -> None:
    refused = {name for _, fate in ROWS if "refused" in fate for name in NAMED.findall(fate) if name.startswith("--")}
    refused -= {"--vllm-version"}
    assert len(refused) >= 14
    effects = {f"--{flag.name}": flag.effect for flag in flag_table()}
    assert {effects[name.replace("--no-", "--")] for name in refused} == {FlagEffect.NOT_MODELLED}


def test_a_head_that_drafts_takes_memory() -> None:
    plain = setup().deployment
    drafted = setup("--speculative-config", json.dumps(DRAFTS | {"method": "eagle3"})).deployment
    assert (drafted.weight_gib or 0) > (plain.weight_gib or 0) > 0
    assert 0 < (drafted.num_gpu_blocks or 0) < (plain.num_gpu_blocks or 0) * 32 / 33
    (said,) = (each for each in drafted.assumed if each.name == "drafting")
    assert said.why == "the head counts as one more layer of the model: time, weights and KV"
