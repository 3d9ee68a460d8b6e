"""A pasted line is taken apart as a shell would, and a file of flags as vLLM does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokenyard.deploy.serve_line import ServeLine, read_config_file, read_serve_line, read_serve_text
from tokenyard.errors import ConfigError

LINE = "vllm serve qwen3-8b --max-num-seqs 64"
SAID = {"model": "qwen3-8b", "max-num-seqs": 64}


def values(line: ServeLine) -> dict[str, Any]:
    return {each.flag.name: each.value for each in line.given}


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        f"  {LINE}  ",
        f"$ {LINE}",
        f"{LINE} # the small one",
        f"# first:\n{LINE}\n",
        f"{LINE} > vllm.log 2>&1 &",
        f"{LINE} | tee log",
        f"{LINE}; sleep 1",
        f"{LINE} && echo done",
        "vllm serve qwen3-8b \\\n  --max-num-seqs 64 \\\n",
        "vllm serve qwen3-8b \\  \r\n  --max-num-seqs 64",
        "vllm serve qwen3-8b # a comment\n  --max-num-seqs 64",
        "vllm serve --max-num-seqs 64 qwen3-8b",
        "vllm serve --model qwen3-8b --max_num_seqs=64",
        "vllm serve 'qwen3-8b' --max-num-seqs \"64\"",
        "/opt/bin/vllm serve qwen3-8b --max-num-seqs 64",
        "sudo nohup vllm serve qwen3-8b --max-num-seqs 64",
        "uv run --with vllm vllm serve qwen3-8b --max-num-seqs 64",
        "MODEL=qwen3-8b\nvllm serve $MODEL --max-num-seqs ${SEQS:-64}",
        "export MODEL=qwen3-8b SEQS=64\nvllm serve ${MODEL} --max-num-seqs $SEQS",
        "python3 -m vllm.entrypoints.openai.api_server --model qwen3-8b --max-num-seqs 64",
        "docker run --gpus all -p 8000:8000 -v ~/.cache:/c vllm/vllm-openai:v0.11.0 --model qwen3-8b --max-num-seqs 64",
        "docker run --rm registry.example/vllm-openai vllm serve qwen3-8b --max-num-seqs 64",
        "--model qwen3-8b --max-num-seqs 64",
    ],
)
def test_a_line(text: str) -> None:
    assert values(read_serve_text(text)) == SAID


def test_variables_in_front() -> None:
    line = read_serve_text("VLLM_USE_V1=1 CUDA_VISIBLE_DEVICES=0,1 \\\n  vllm serve qwen3-8b --max-num-seqs 64")
    assert line.environment == {"VLLM_USE_V1": "1", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert values(line) == SAID
    assert read_serve_text(f"env VLLM_A=1 {LINE}").environment == {"VLLM_A": "1"}
    assert read_serve_text(f"A=1 {LINE}").environment == {"A": "***"}  # nothing of vLLM's: not shown


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("", ["holds no `vllm serve`"]),
        ("vllm bench serve --model m", ["holds no `vllm serve`"]),
        ("echo hello", ["holds no `vllm serve`"]),
        ("vllm serve 'qwen3-8b", ["no closing quotation"]),
        ("vllm serve a b", ["'b'", "stands behind the model (a)"]),
        ("vllm serve a --max-num-sqs 3", ["--max-num-sqs", "did you mean --max-num-seqs?"]),
        ("vllm serve a --max-num-seqs", ["--max-num-seqs", "needs a value"]),
        ("vllm serve a --max-num-seqs $SEQS", ["--max-num-seqs = '$SEQS'"]),
        ("vllm serve a --config absent.yaml", ["absent.yaml", "cannot be read"]),
    ],
)
def test_a_line_that_cannot_be_read(text: str, fragments: list[str]) -> None:
    with pytest.raises(ConfigError) as mistake:
        read_serve_text(text)
    for fragment in fragments:
        assert fragment in str(mistake.value)


def test_a_file_that_holds_the_line(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text(f"#!/bin/sh\nset -e\n{LINE}\n")
    assert values(read_serve_line(f"@{path}")) == values(read_serve_line(str(path))) == SAID
    for wrong, problem in (("@", "is a directory"), (f"@{tmp_path}", "is a directory"), ("@absent", "cannot be read")):
        with pytest.raises(ConfigError, match=problem):
            read_serve_line(wrong)


def test_a_file_of_flags(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(
        "model: qwen3-8b\nmax-num-seqs: 64\nmax_model_len: 32k\nenable-prefix-caching: false\nasync-scheduling: true\n"
        "served-model-name: [a, b]\nhf-token:\nspeculative-config:\n  method: ngram\n  num_speculative_tokens: 3\n"
    )
    found = {each.flag.name: each.value for each in read_config_file(path)}
    assert found == {
        "model": "qwen3-8b",
        "max-num-seqs": 64,
        "max-model-len": 32_000,
        "enable-prefix-caching": False,
        "async-scheduling": True,
        "served-model-name": ["a", "b"],
        "speculative-config": {"method": "ngram", "num_speculative_tokens": 3},
    }
    both = values(read_serve_text(f"vllm serve llama-3.1-8b --config {path} --max-num-seqs 7"))
    assert (both["model"], both["max-num-seqs"], both["max-model-len"]) == ("llama-3.1-8b", 7, 32_000)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("flags.json", "{}", "ends with .yaml"),
        ("flags.yaml", "a: [", "is not YAML"),
        ("flags.yaml", "- a", "must hold flags"),
        ("flags.yaml", "1: 2", "must hold flags"),
        ("flags.yaml", "max-num-sqs: 2", "did you mean --max-num-seqs"),
        ("flags.yml", "max-num-seqs: many", "give a whole number"),
        ("flags.yml", "max-num-seqs: 2021-13-41", "is not YAML"),
        ("flags.yml", "max-num-seqs: 0x_", "is not YAML"),
        ("flags.yml", 'x: !!int "z"', "is not YAML"),
        ("flags.yml", 'x: !!timestamp "x"', "is not YAML"),
        ("flags.yml", "a: &a [1]\nb: [*a, *a]", "has an alias"),
    ],
)
def test_a_file_that_cannot_be_read(name: str, content: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=problem):
        read_config_file(tmp_path / name)


def test_an_empty_file_of_flags(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("")
    assert read_config_file(tmp_path / "a.yaml") == []
