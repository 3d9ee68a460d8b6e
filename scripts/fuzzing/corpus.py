"""Sound inputs of every kind, from which hostile ones are made; and the commands that read each kind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from tokenyard.cli.main import main

__all__ = ["Seed", "seeds"]

REPO = Path(__file__).resolve().parent.parent.parent
_SMALL = ("--gpu", "l4", "--model", "llama-3.2-1b", "--max-model-len", "4096", "--num-gpu-blocks-override", "300")
_RUN = (("run", "{}", *_SMALL, "--skip-refused", "--json"), ("import", "{}", "--json"))
_SAMPLE = 8192
"""Bytes of each sample log."""
_TRACE = (
    ("report", "{}", "--json"),
    ("report", "{}"),
    ("why", "{}"),
    ("whatif", "{}", "--set", "max_num_seqs=2", "--yes"),
    ("export", "{}", "--chrome", "out.json"),
    ("export", "{}", "--perfetto", "out.pftrace"),
    ("export", "{}", "--html", "out.html"),
    ("convert", "{}", "--output", "out", "--overwrite"),
    ("query", "{}", "select * from steps limit 5"),
    ("compare", "{}", "{}"),
    ("run", "random", "--num-prompts", "3", "--latency", "fitted:{}"),
)


class Seed(NamedTuple):
    """One sound input."""

    name: str
    """Name of the file; what stands behind it decides how it is read."""
    data: bytes
    commands: tuple[tuple[str, ...], ...]
    """Commands that read it; ``{}`` stands for the file."""


def seeds(folder: Path) -> list[Seed]:
    """All kinds; ``folder`` is for what has to be made first."""
    return [*_traces(folder), *_workloads(), *_vectors(), *_others(), *_serve_texts()]


def _quietly(*arguments: str) -> None:
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as said:
        code = main(arguments)
    assert code == 0, said.getvalue()


def _traces(folder: Path) -> Iterator[Seed]:
    trace = folder / "trace"
    _quietly("run", "agentic", "--limit", "3", *_SMALL, "--skip-refused", "--trace", str(trace), "--record-requests")
    (steps,) = trace.glob("*.steps.jsonl")
    lines = steps.read_bytes().splitlines(keepends=True)
    short = b"".join((*lines[:40], *lines[-10:]))
    yield Seed(steps.name, short, _TRACE)
    yield Seed(steps.name + ".gz", gzip.compress(short), _TRACE)
    for requests in trace.glob("*.requests.jsonl"):
        yield Seed(requests.name, requests.read_bytes()[:60_000], _TRACE)
    small = folder / "small"
    small.mkdir()
    (small / steps.name).write_bytes(short)
    _quietly("convert", str(small))
    for twin in small.glob("*.parquet"):
        yield Seed(twin.name, twin.read_bytes(), _TRACE)


def _json_lines(records: Sequence[dict[str, object]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _workloads() -> Iterator[Seed]:
    plain: list[dict[str, object]] = []
    for i in range(6):
        hashes = {"hash_ids": [1, i], "block_size": 32}
        plain += [{"request_id": f"r{i}", "prompt_len": 40 + i, **hashes, "max_tokens": 4, "arrival_time": i}]
    plain += [{"request_id": "z", "prompt_token_ids": [1, 2, 3], "max_tokens": 2, "after": ["r0", "r1"], "gap": 0.5}]
    yield Seed("plain.jsonl", _json_lines(plain), _RUN)
    yield Seed("plain.jsonl.gz", gzip.compress(_json_lines(plain)), _RUN)
    mooncake: list[dict[str, object]] = [
        {"timestamp": i * 500, "input_length": 900 + i, "output_length": 3, "hash_ids": [1, 2 + i]} for i in range(6)
    ]
    yield Seed("mooncake.jsonl", _json_lines(mooncake), _RUN)
    lmcache: list[dict[str, object]] = [
        {"suite": "s", "session": "a", "timestamp": i * 9, "input_length": 99, "output_length": 3, "hash_ids": [7, 8]}
        for i in range(4)
    ]
    yield Seed("lmcache.jsonl", _json_lines(lmcache), _RUN)
    call = {"t": 1.5, "type": "n", "in": 200, "out": 5, "api_time": 1.0, "think_time": 2.0, "keep": 0, "new": [[1, 3]]}
    nested = {"t": 9.0, "type": "subagent", "duration_ms": 3000, "requests": [call]}
    session = {"id": "w", "block_size": 64, "hash_id_scope": "local", "requests": [call, nested, {**call, "t": 12}]}
    yield Seed("weka.jsonl", _json_lines([session]), _RUN)
    azure = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n2023-11-16 18:17:04.0,9,3\n"
    yield Seed("azure.csv", azure, _RUN)
    yield Seed("servegen.csv", b"t_s,client,input_tokens,output_tokens\n0.5,1,90,3\n1.5,2,80,4\n", _RUN)
    usage = {"prompt_tokens": 90, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 32}}
    openai: list[dict[str, object]] = [{"id": f"c{i}", "created": 1764000000 + i, "usage": usage} for i in range(5)]
    yield Seed("openai.jsonl", _json_lines(openai), _RUN)
    bench: dict[str, object] = {"total_input_tokens": 3, "request_throughput": 1}
    bench |= {"input_lens": [9, 8], "output_lens": [2, 3], "start_times": [1, 2]}
    yield Seed("bench.json", json.dumps(bench, indent=1).encode(), _RUN)
    attributes = [{"key": f"gen_ai.usage.{side}_tokens", "value": {"intValue": "9"}} for side in ("input", "output")]
    times = {"startTimeUnixNano": "17640000000000", "endTimeUnixNano": "17640000000009"}
    span = {"spanId": "a", **times, "attributes": attributes}
    yield Seed("spans.json", json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode(), _RUN)
    vllm = (
        b"INFO 11-22 03:17:52 [logger.py:39] Received request a-1: prompt: 'hi', "
        b"params: SamplingParams(n=1, max_tokens=9), prompt_token_ids: [4, 5], lora_request: None.\n"
        b"INFO 11-22 03:17:56 [logger.py:70] Generated response a-1: "
        b"output: 'y', output_token_ids: [7, 8], finish_reason: stop\n"
    )
    yield Seed("vllm.log", vllm, _RUN)
    for path in sorted((REPO / "tests" / "samples" / "logs").iterdir()):
        yield Seed(path.name, path.read_bytes()[:_SAMPLE], (("import", "{}", "--json"),))


def _vectors() -> Iterator[Seed]:
    files = sorted((REPO / "conformance" / "vectors" / "0.22").glob("*.jsonl.gz"))
    for path in sorted(files, key=lambda each: each.stat().st_size)[:4]:
        yield Seed("vector.jsonl", gzip.decompress(path.read_bytes()), (("parity", "{}"),))
        yield Seed("vector.jsonl.gz", path.read_bytes(), (("parity", "{}", "--json"),))


def _others() -> Iterator[Seed]:
    config: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 4,
        "intermediate_size": 4096,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
    }
    replay = ("run", "random", "--num-prompts", "3", "--gpu", "l4")
    yield Seed("config.json", json.dumps(config).encode(), ((*replay, "--model", "{}"),))
    weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
    quantised = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": weights}},
        "ignore": ["re:.*lm_head", "re:model.layers.(0|1).mlp.*$", "re:(.*)*Q$", "model.layers.2.mlp", "*.q_proj"],
    }
    config["quantization_config"] = quantised
    yield Seed("quantised.json", json.dumps(config).encode(), ((*replay, "--model", "{}"),))
    policy = b"from tokenyard import FCFSPolicy\n\n\nclass Mine(FCFSPolicy):\n    pass\n"
    yield Seed("policy.py", policy, ((*replay, "--scheduling-policy", "{}:Mine"),))


def _serve_texts() -> Iterator[Seed]:
    """What people give as ``--serve`` and ``--config``: a kind of text each, with variables."""
    replay = ("run", "random", "--num-prompts", "3", "--model", "llama-3.2-1b", "--max-model-len", "4096")
    commands = ((*replay, "--ignore-unmodelled", "--replicas", "1", "--serve", "{}"),)
    shell = (
        b"#!/bin/sh\nexport SEQS=8 ARGS='--port 80 --api-key k'\n# a comment\nVLLM_USE_V1=1 vllm serve x/y \\\n"
        b'  --max-num-seqs ${SEQS:-4} $ARGS --root-path "$HOME/x" > log 2>&1 &\n'
    )
    yield Seed("serve.sh", shell, commands)
    docker = b"docker run --gpus all -e HF_TOKEN=t -p 80:80 vllm/vllm-openai:v0.22.1 --model x/y --max-num-seqs 8\n"
    yield Seed("docker.sh", docker, commands)
    manifest = (
        b"kind: Deployment\nspec:\n  replicas: 2\n  template:\n    spec:\n      nodeSelector: {gpu.product: "
        b"NVIDIA-L4}\n      containers:\n      - image: vllm/vllm-openai:v0.33.0\n        args: [x/y, '--max-num-seqs="
        b"$(N)']\n        env: [{name: N, value: '8'}]\n"
    )
    yield Seed("deployment.yaml", manifest, commands)
    compose = b"services:\n  a:\n    image: vllm/vllm-openai\n    command: --model x/y --max-num-seqs 8\n    scale: 2\n"
    yield Seed("compose.yaml", compose, commands)
    values = (
        b"servingEngineSpec:\n  modelSpec:\n  - {modelURL: x/y, tag: v0.22.1, repository: vllm/vllm-openai, "
        b"replicaCount: 1, vllmConfig: {maxNumSeqs: 8, extraArgs: ['--port', '80']}}\n"
    )
    yield Seed("values.yaml", values, commands)
    service = (
        b"kind: InferenceService\nspec:\n  predictor:\n    minReplicas: 1\n    model:\n      args: [--model_id=x/y, "
        b"--max-num-seqs=8]\n"
    )
    yield Seed("kserve.yaml", service, commands)
    unit = b"[Service]\nEnvironment=A=8 'B=c d'\nExecStart=/bin/vllm serve x/y \\\n  --max-num-seqs ${A}\n"
    yield Seed("vllm.service", unit, commands)
    log = (
        b"INFO [startup.py:96] non-default args: {'model_tag': 'x/y', 'model': 'x/y', 'max_num_seqs': 8, "
        b"'kv_transfer_config': KVTransferConfig(kv_connector='OffloadingConnector', kv_role='kv_both')}\n"
        b"Initializing a V1 LLM engine (v0.33.0) "
        b"with config: model='x/y', dtype=torch.bfloat16, max_seq_len=4096\nAvailable KV cache memory: 2.5 GiB\n"
        b"GPU KV cache size: 81,920 tokens, Maximum concurrency for 4,096 tokens per request: 20.0x\n"
    )
    yield Seed("start.log", log, commands)
    flags = b"max-num-seqs: 8\nport: 80\nenable-prefix-caching: false\nserved-model-name: [a, b]\n"
    yield Seed("flags.yaml", flags, ((*replay, "--ignore-unmodelled", "--config", "{}"),))
