"""Lines as they stand in public recipes: each can be read, and each says what it assumed and ignored."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.deploy.serve_line import read_serve_text
from tokenyard.deploy.vllm_serve.flags import FlagEffect
from tokenyard.models import named
from tokenyard.questions.scenario import replay_spec

CONFIGS = Path(named.__file__).parent / "configs"
LINES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("public_lines.toml").read_text())["line"]
SHAPE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 1024,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 2048,
    "vocab_size": 32_000,
    "max_position_embeddings": 131_072,
    "torch_dtype": "bfloat16",
}
"""Stands in for models of any size: what is tested is what a line says."""


EXPERTS = json.loads((CONFIGS / "glm-4.5-air.json").read_text()) | {
    "num_hidden_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 64,
    "moe_intermediate_size": 512,
}
"""Stands in for those with experts, or with layers that predict further."""

QUANTISED = {
    "modelopt": {"quant_method": "modelopt", "quant_algo": "FP8"},
    "moe_wna16": {"quant_method": "awq", "bits": 4, "group_size": 128},
}
"""What the checkpoints say that need it."""


def name_of(line: dict[str, Any]) -> str:
    return f"{line['source'].rsplit('/', 1)[-1]}: {line['given']['model']}"


def test_there_are_thirty() -> None:
    assert len(LINES) >= 30
    assert all(line["source"].startswith("https://github.com/") for line in LINES)


@pytest.mark.parametrize("line", LINES, ids=name_of)
def test_it_is_read(line: dict[str, Any]) -> None:
    found = {each.flag.name: each.value for each in read_serve_text(line["text"]).given}
    expected = {
        name: json.loads(value) if isinstance(value, str) and value.startswith("{") else value
        for name, value in line["given"].items()
    }
    assert found == expected


@pytest.mark.parametrize("line", LINES, ids=name_of)
def test_every_flag_is_accounted_for(line: dict[str, Any], tmp_path: Path) -> None:
    length = {"max_position_embeddings": line["given"].get("max-model-len", SHAPE["max_position_embeddings"])}
    method = QUANTISED.get(line["given"].get("quantization"))
    quantised = {"quantization_config": method} if method else {}
    # The models that are spread so have one KV head, of which every GPU has a copy.
    heads = {"num_key_value_heads": 1} if "decode-context-parallel-size" in line["given"] else {}
    needs_experts = "enable-expert-parallel" in line["given"] or "mtp" in str(line["given"].get("speculative-config"))
    shape = EXPERTS if needs_experts else SHAPE
    (tmp_path / "config.json").write_text(json.dumps(shape | length | quantised | heads))
    ours = ["--model", str(tmp_path), "--gpu", "h200", "--ignore-unmodelled"]
    command = parse(["run", "chat", "--limit", "1", "--serve", line["text"], *ours])
    assert isinstance(command, RunCommand)
    header = replay_spec(scenario_of(command)).deployment
    said = {
        FlagEffect.USED: header.used,
        FlagEffect.NO_EFFECT: header.without_effect,
        FlagEffect.NOT_MODELLED: header.ignored,
    }
    for each in command.launch.asked.given:
        kinds = {kind for kind, lines in said.items() if any(text.startswith(f"{each}") for text in lines)}
        expected = (
            FlagEffect.NO_EFFECT if each.changes_nothing and each.effect is FlagEffect.NOT_MODELLED else each.effect
        )
        assert kinds == {expected}, each
    assumed = {each.name for each in header.assumed}
    for name in ("max-num-seqs", "max-num-batched-tokens", "max-model-len", "gpu-memory-utilization"):
        assert (name in assumed) == (name not in line["given"])
    assert "step times" in assumed
