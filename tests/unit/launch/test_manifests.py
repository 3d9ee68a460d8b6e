"""Manifests that start vLLM, as a user pastes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenyard.deploy.serve_line import read_config_file, read_serve_line, read_serve_text
from tokenyard.errors import ConfigError

KUBERNETES = """
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: proxy
        image: nginx
        args: ["--quiet"]
      - name: vllm
        image: vllm/vllm-openai:v0.11.0
        command: ["vllm", "serve"]
        args:
        - "openai/gpt-oss-120b"
        - "--tensor-parallel-size=2"
        - --max-model-len
        - 32768
        - --served-model-name=$(NAME)
        env:
        - {name: NAME, value: mine}
        - {name: VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8, value: "1"}
        - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hf, key: token}}}
"""
COMPOSE = """
services:
  llm:
    image: vllm/vllm-openai:latest
    command: >
      --model openai/gpt-oss-20b
      --max-num-seqs 64
    environment:
      - VLLM_LOGGING_LEVEL=DEBUG
  db:
    image: postgres
    command: postgres -c max_connections=9
"""
SCRIPT = """
spec:
  containers:
  - name: any
    image: my/image
    command: ["/bin/bash", "-c"]
    args:
    - |
      export SEQS=32
      vllm serve openai/gpt-oss-20b \\
        --max-num-seqs $SEQS
"""


def values(text: str) -> dict[str, object]:
    return {each.flag.name: each.value for each in read_serve_text(text).given}


def test_kubernetes() -> None:
    said = values(KUBERNETES)
    assert said == {
        "model": "openai/gpt-oss-120b",
        "tensor-parallel-size": 2,
        "max-model-len": 32768,
        "served-model-name": "mine",
    }
    environment = read_serve_text(KUBERNETES).environment
    assert environment["VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8"] == "1"
    assert "HF_TOKEN" not in environment


def test_compose_and_a_script() -> None:
    assert values(COMPOSE) == {"model": "openai/gpt-oss-20b", "max-num-seqs": 64}
    assert read_serve_text(COMPOSE).environment == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert values(SCRIPT) == {"model": "openai/gpt-oss-20b", "max-num-seqs": 32}


@pytest.mark.parametrize(
    "text",
    [
        'args:\n- "openai/gpt-oss-20b"\n- --max-num-seqs\n- "7"',
        "- --model\n- openai/gpt-oss-20b\n- --max-num-seqs=7",
        '["vllm", "serve", "openai/gpt-oss-20b", "--max-num-seqs", "7"]',
        "command: [python3, -m, vllm.entrypoints.openai.api_server]\nargs: [openai/gpt-oss-20b, --max-num-seqs=7]",
        "vllm serve openai/gpt-oss-20b\n  --max-num-seqs 7\n",
    ],
)
def test_parts_of_them_and_a_line_that_lost_its_backslashes(text: str) -> None:
    assert values(text) == {"model": "openai/gpt-oss-20b", "max-num-seqs": 7}


def test_several_containers_are_refused() -> None:
    two = f"{KUBERNETES}---{KUBERNETES}"
    with pytest.raises(ConfigError, match="2 containers start vLLM: paste the one that is meant"):
        read_serve_text(two)


def test_what_is_no_manifest_of_vllm() -> None:
    for text in ("services:\n  db:\n    image: postgres\n    command: postgres -c x=1", "a: [1, 2]\nb: c", "[1, [2]]"):
        with pytest.raises(ConfigError, match=r"holds no `vllm serve`|vllm serve"):
            read_serve_text(text)


def test_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "deployment.yaml"
    path.write_text(KUBERNETES)
    assert {each.flag.name for each in read_serve_line(str(path)).given} >= {"model", "tensor-parallel-size"}
    with pytest.raises(ConfigError, match="is a manifest, not a file of flags: give --serve"):
        read_config_file(path)
