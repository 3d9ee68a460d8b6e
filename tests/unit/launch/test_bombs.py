"""No text costs more than its length warrants."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tokenyard.deploy.serve_line import read_config_file, read_serve_text
from tokenyard.deploy.vllm_serve.shell import MOST_CHARACTERS
from tokenyard.errors import ConfigError
from tokenyard.models.named import model_spec


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits of memory need Linux")
def test_short_texts_that_ask_for_much() -> None:
    """In a process of its own, with limits of processor time and memory for each text."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("bombs.py"))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &a [x]\nargs: *a\n", "has an alias"),
        ("vllm serve m" + " " * MOST_CHARACTERS, "no more than 65,536 are read"),
        ("A=" + "a" * 40_000 + "\nvllm serve $A $A", "stands for more than 65,536 characters"),
        ("vllm serve ${A:-" * 11 + "x" + "}" * 11, "more than 10 deep"),
        ("vllm serve m --speculative-config." + "a." * 60 + "a 1", "give no more than 50"),
        ("vllm serve m --max-model-len " + "9" * 400 + ".5k", "give a whole number"),
        ("vllm serve 'm", "no closing quotation mark (line 1)"),
        ("vllm serve $(m", "no closing )"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as mistake:
        read_serve_text(text)
    assert problem in str(mistake.value)


def test_a_file_of_flags_that_overflows(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("max-num-seqs: " + "1:" * 400 + "1.5\n")
    with pytest.raises(ConfigError, match="is not what it is said to be"):
        read_config_file(path)


@pytest.mark.parametrize(
    ("ignore", "problem"),
    [
        (["re:(?!.*experts).*"], "looks ahead or behind"),
        (["re:" + "a" * 600], "of 500 that are read"),
        (["x"] * 10_001, "has 10,001 entries"),
    ],
)
def test_patterns_of_a_configuration(ignore: list[str], problem: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(configuration(ignore))
    with pytest.raises(ConfigError, match=problem):
        model_spec(str(tmp_path))


def test_a_pattern_that_python_never_ends(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(configuration(["re:(.*)*Q$", "re:.*lm_head"]))
    assert model_spec(str(tmp_path)).weight_format.name == "fp8"


def configuration(ignore: list[str]) -> str:
    """The configuration of a model whose quantisation leaves some modules alone."""
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    quantised = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": weights}},
        "ignore": ignore,
    }
    shape = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_hidden_layers": 4, "intermediate_size": 4096, "vocab_size": 32_000,
        "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    }  # fmt: skip
    return json.dumps(shape | {"quantization_config": quantised})
