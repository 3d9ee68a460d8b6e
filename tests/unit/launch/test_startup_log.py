"""A start-up log says what the command line said, and what vLLM made of it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tokenyard.deploy.serve_line import ServeLine, read_serve_line, read_serve_text
from tokenyard.deploy.texts.data import ReprError, read_repr
from tokenyard.errors import ConfigError

STARTS: list[dict[str, str]] = tomllib.loads(Path(__file__).with_name("startup_lines.toml").read_text())["start"]
V22 = """\
\x1b[0;36m(APIServer pid=12)\x1b[0;0m INFO 11-23 20:23:41 [utils.py:299] \
       █     █     █▄   ▄█
\x1b[0;36m(APIServer pid=12)\x1b[0;0m INFO 11-23 20:23:41 [utils.py:299] ▄▄ ▄█ █    █ ▀▄▀ █  version 0.22.1
\x1b[0;36m(APIServer pid=12)\x1b[0;0m INFO 11-23 20:23:41 [utils.py:299]   █▄█▀ █   model   Qwen/Qwen3-8B
(APIServer pid=12) INFO 11-23 20:23:41 [utils.py:278] non-default args: {'model_tag': 'Qwen/Qwen3-8B', 'model': \
'Qwen/Qwen3-8B', 'tensor_parallel_size': 2}
(APIServer pid=12) INFO 11-23 20:23:45 [model.py:1752] Using max model len 40960
(APIServer pid=12) INFO 11-23 20:23:45 [scheduler.py:240] Chunked prefill is enabled with max_num_batched_tokens=8192.
(APIServer pid=12) INFO 11-23 20:23:45 [vllm.py:978] Asynchronous scheduling is enabled.
(EngineCore pid=99) INFO 11-23 20:23:55 [core.py:113] Initializing a V1 LLM engine (v0.22.1) with config: \
model='Qwen/Qwen3-8B', speculative_config=None, tokenizer='Qwen/Qwen3-8B', dtype=torch.bfloat16, max_seq_len=40960, \
tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, enforce_eager=False, \
kv_cache_dtype=auto, enable_prefix_caching=True, enable_chunked_prefill=True, pooler_config=None
(Worker_TP0 pid=101) WARNING 11-23 20:24:10 [fp8_utils.py:834] Using default W8A8 Block FP8 kernel config. Performance \
might be sub-optimal! Config file not found at /x/N=1,K=2,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8.json
(Worker_TP0 pid=101) INFO 11-23 20:24:20 [gpu_worker.py:467] Available KV cache memory: 58.31 GiB
(Worker_TP1 pid=102) INFO 11-23 20:24:20 [gpu_worker.py:467] Available KV cache memory: 58.25 GiB
(EngineCore pid=99) INFO 11-23 20:24:20 [kv_cache_utils.py:1733] GPU KV cache size: 848,224 tokens
(EngineCore pid=99) INFO 11-23 20:24:20 [kv_cache_utils.py:1] Maximum concurrency for 40,960 tokens per request: 20.71x
"""
V33 = """\
(APIServer pid=12) INFO 11-23 20:23:41 [startup.py:36] vLLM server version 0.33.0, serving model Qwen/Qwen3-8B
(APIServer pid=12) INFO 11-23 20:23:41 [startup.py:96] non-default args: {'model_tag': 'Qwen/Qwen3-8B', 'model': \
'Qwen/Qwen3-8B', 'max_num_batched_tokens': 4096, 'api_key': '***'}
(EngineCore pid=99) INFO 11-23 20:24:20 [gpu_worker.py:773] Available KV cache memory: 18.85 GiB
(EngineCore pid=99) INFO 11-23 20:24:20 [kv_cache_utils.py:1149] GPU KV cache size: 137,264 tokens, Maximum \
concurrency for 40,960 tokens per request: 3.35x
(APIServer pid=12) INFO 11-23 20:24:30 [x.py:1] Chunked prefill is enabled with max_num_batched_tokens=4096.
"""


def values(line: ServeLine) -> dict[str, Any]:
    return {each.flag.name: each.value for each in line.given}


@pytest.mark.parametrize("version", ["v0_22", "v0_33"])
@pytest.mark.parametrize("start", STARTS, ids=lambda start: start["line"])
def test_arguments_as_vllm_logs_them(start: dict[str, str], version: str) -> None:
    """The same flags as the line itself; objects in a log have fields besides that were not set."""
    said, logged = values(read_serve_text(start["line"])), values(read_serve_text(start[version]))
    # What equals the default is not logged.
    assert logged.keys() | {"allowed-origins"} == said.keys() | {"allowed-origins"}
    for name, value in said.items():
        if isinstance(value, dict):
            assert {field: logged[name][field] for field in value} == value
        elif name not in ("api-key", "hf-token", "allowed-origins", "lora-modules"):
            assert logged[name] == value
    assert "PLANTED" not in repr(logged)


def test_a_whole_log_of_0_22() -> None:
    line = read_serve_text(V22)
    assert values(line) == {"model": "Qwen/Qwen3-8B", "tensor-parallel-size": 2}
    assert line.version is not None
    assert line.version.value == "0.22.1"
    assert line.gpu is not None
    assert line.gpu.value == "h100"
    assert line.resolved == {"max_model_len": 40_960, "max_num_batched_tokens": 8192, "async_scheduling": True}
    assert line.kv[:4] == (int(58.25 * (1 << 30)), 848_224, 40_960, 20.71)


def test_a_whole_log_of_0_33_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    noise = '(APIServer pid=12) INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    path.write_text(V33 + noise * 60_000)  # a log of a day: its beginning is read
    line = read_serve_line(str(path))
    assert values(line) == {"model": "Qwen/Qwen3-8B", "max-num-batched-tokens": 4096, "api-key": ["***"]}
    assert line.version is not None
    assert line.version.value == "0.33.0"
    assert (line.gpu, line.resolved) == (None, {})
    assert line.kv[:4] == (int(18.85 * (1 << 30)), 137_264, 40_960, 3.35)
    assert ("start-up log", "no GPU") in [each[:2] for each in line.notes]


def test_the_last_of_several_starts() -> None:
    other = V33.replace("4096", "2048").replace("18.85", "10.00")
    line = read_serve_text(other + V33)
    assert values(line)["max-num-batched-tokens"] == 4096
    assert line.kv.memory_bytes == int(18.85 * (1 << 30))
    assert ("start-up log", "2 starts") in [each[:2] for each in line.notes]


def test_a_log_whose_arguments_were_cut_off() -> None:
    line = read_serve_text("\n".join(V22.splitlines()[5:]))
    assert values(line)["tensor-parallel-size"] == 2
    assert values(line)["model"] == "Qwen/Qwen3-8B"
    assert values(line)["max-model-len"] == 40_960
    assert "kv-cache-dtype" not in values(line)


def test_a_log_without_a_start() -> None:
    with pytest.raises(ConfigError, match="starts no vLLM that can be read"):
        read_serve_text("INFO [gpu_worker.py:773] Available KV cache memory: 18.85 GiB")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 1, 'b': [1.5, -2, True, None], }", {"a": 1, "b": [1.5, -2, True, None]}),
        ("{'mode': <CompilationMode.VLLM_COMPILE: 3>, 'x': <object at 0x7f>}", {"mode": "VLLM_COMPILE", "x": None}),
        ("Config(name='a\\'b', inner=Other(), many=(1, 2))", {"name": "a'b", "inner": [], "many": [1, 2]}),
        ("{'a': inf, \"b\": 'x'}  and more", {"a": float("inf"), "b": "x"}),
        ("{1: torch.bfloat16}", {1: "torch.bfloat16"}),
    ],
)
def test_values_as_python_prints_them(text: str, value: Any) -> None:
    assert read_repr(text) == value


@pytest.mark.parametrize("text", ["", "{", "{'a' 1}", "{'a': }", "[" * 100, "{'a': '", "<a", "f(1"])
def test_values_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ReprError):
        read_repr(text)
