"""Ask vLLM one thing: a question as JSON in, an answer as JSON out, by a process of its own that seems to have a GPU.

    PYTHONPATH=src:lab PYTHON lab/ask_vllm.py record_stages:stages '{"config": {...}}' [--gpu h100] [--seconds 240]

PYTHON has vLLM's sources and torch; no GPU and no weights are needed: models are built on torch's ``meta`` device. All
``record_*.py`` ask in this way, each with questions of its own, and write what they hear with the functions below.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from tokenyard.models.gpus import GPUS
from tokenyard.vllm.describing.pretend_gpu import (
    pretend_flashinfer,
    pretend_gpu,
    pretend_tokenizer,
    pretend_torchvision,
)

__all__ = [
    "AVAILABLE",
    "MODELS",
    "RECORDED",
    "ROOT",
    "answers_in",
    "around",
    "ask_vllm",
    "built_model",
    "config_of",
    "line_of",
    "names_given",
    "planned",
    "pretend",
    "registry_entries",
    "write_answers",
    "write_rows",
]

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "tests" / "unit" / "models"
RECORDED = ROOT / "src" / "tokenyard" / "models" / "recorded"
AVAILABLE = (4 << 30, (24 << 30) + 12_345, 70 << 30)
"""Bytes for the KV cache on every GPU that plans are recorded for."""

# ---------------------------------------------------------------------------------------------------------------------
# Asking.


def pretend(gpu: str = "h100", *, tokenizer: bool = True) -> None:
    """Let there be a GPU. What models are built with is loaded once, for all processes that are forked from here."""
    pretended = GPUS[gpu]
    pretend_gpu(pretended.memory_bytes, pretended.compute_capability, f"NVIDIA {gpu.upper()}")
    pretend_torchvision()
    pretend_flashinfer()
    if tokenizer:
        pretend_tokenizer()
    import_module("tokenyard.vllm.describing.built").versions()


def ask_vllm(asked: Callable[..., Any], seconds: float = 240, **question: Any) -> Any:
    """What ``asked(**question)`` returns in a forked process, or ``{"error": why there is no answer}``."""
    said = json.dumps(question)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        _answer(asked, said, writer)
    os.close(writer)
    heard, until = b"", time.monotonic() + seconds
    while is_there := select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        if not (piece := os.read(reader, 1 << 20)):
            break
        heard += piece
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not is_there:
        return {"error": f"no answer within {seconds:g} s"}
    if not heard:
        return {"error": f"the process ended with {os.waitstatus_to_exitcode(status)}"}
    return json.loads(heard)


def _answer(asked: Callable[..., Any], said: str, writer: int) -> NoReturn:
    try:
        logging.disable(logging.CRITICAL)
        try:
            answer = asked(**json.loads(said))
        except Exception as error:  # noqa: BLE001 - one thing that cannot be asked must not hide the others
            answer = {"error": line_of(error)}
        with os.fdopen(writer, "wb") as stream:
            stream.write(json.dumps(answer).encode())
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the process is a copy of another, and must not go on as that
        os._exit(1)


def line_of(error: Exception) -> str:
    """An error as a line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


# ---------------------------------------------------------------------------------------------------------------------
# Questions about models.


def built_model(config: dict[str, Any], size: int = 1, kind: str = "", **options: Any) -> Any:
    """A model as vLLM builds it, with the options and files that its architecture needs."""
    from planner.draw import config_class
    from planner.published import FILES, OPTIONS
    from tokenyard.vllm.describing.built import BuiltModel

    name = config["architectures"][0]
    config_class(name)  # registers what stands in where no class reads its files
    runner = {"runner": "pooling"} if kind == "pooling" else {}
    return BuiltModel(config, size, {**runner, **OPTIONS.get(name, {}), **options}, files=FILES.get(name))


def planned(built: Any, tensor_parallel_size: int, available: Iterable[int]) -> dict[str, Any]:
    """What the fixtures note of a model: settings as vLLM chose them, weights, and plans for so much memory."""
    parameters, weight_bytes = built.weights()
    model, cache = built.config.model_config, built.config.cache_config
    return {
        "tensor_parallel_size": tensor_parallel_size,
        "dtype": str(model.dtype).removeprefix("torch."),
        "max_model_len": model.max_model_len,
        "kv_cache_dtype": cache.cache_dtype,
        "block_size": cache.block_size,
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "mamba_cache_mode": cache.mamba_cache_mode,
        "async_scheduling": bool(built.config.scheduler_config.async_scheduling),
        "max_num_encoder_input_tokens": built.config.scheduler_config.max_num_encoder_input_tokens,
        "backends": built.backends(),
        "rank_parameters": parameters,
        "rank_weight_bytes": weight_bytes,
        "plans": [{"available_bytes": size, **built.plan(size)} for size in available],
    }


def around(gpu: str = "h100") -> dict[str, Any]:
    """What plans were made with: versions, GPU and settings."""
    from tokenyard.vllm.describing.built import MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS, versions

    settings = {"max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS, "max_num_seqs": MAX_NUM_SEQS}
    return {"versions": versions(), "gpu": gpu, "settings": settings}


# ---------------------------------------------------------------------------------------------------------------------
# Answers.


def registry_entries(*kinds: str) -> dict[str, Any]:
    """Architecture -> what ``record_registry.py`` recorded of it; of all kinds where none is named."""
    entries = json.loads(gzip.decompress((MODELS / "registry.json.gz").read_bytes()))["architectures"]
    return {each["architecture"]: each for each in entries if not kinds or each["kind"] in kinds}


def config_of(entry: Mapping[str, Any], variant: str = "default") -> dict[str, Any] | None:
    """The configuration of a variant that was built; None where it was not."""
    return next((each["config"] for each in entry["cases"] if each["variant"] == variant), None)


def names_given(about: str | None, default: Iterable[str] = ()) -> list[str]:
    """The names on the command line, else ``default``."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="architectures to ask about (default: all)")
    return parser.parse_args().names or list(default)


def answers_in(file: Path, under: str = "architectures") -> dict[str, Any]:
    """The answers that are there."""
    known: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))[under] if file.exists() else {}
    return known


def write_answers(
    file: Path, known: Mapping[str, Any], under: str = "architectures", *, quiet: bool = False, **more: Any
) -> None:
    """Write the answers with the versions that they belong to, and say how many they are."""
    content = {"versions": import_module("tokenyard.vllm.describing.built").versions(), under: known, **more}
    file.write_bytes(gzip.compress(json.dumps(content, sort_keys=True).encode(), mtime=0))
    if not quiet:
        print(f"{len(known)} {under} in {file}, {file.stat().st_size:,} bytes", flush=True)


def write_rows(file: Path, rows: Mapping[str, Any]) -> None:
    """Write a table as JSON with a row a line."""
    lines = [f" {json.dumps(name)}: {json.dumps(each)}" for name, each in rows.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> int:
    """Ask what the command line names; 1 where there is no answer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("asked", metavar="MODULE:FUNCTION")
    parser.add_argument("question", nargs="?", help="JSON; from the standard input where it is left out")
    parser.add_argument("--gpu", choices=GPUS, default="h100")
    parser.add_argument("--seconds", type=float, default=240)
    flags = parser.parse_args()
    pretend(flags.gpu)
    module, _, function = flags.asked.partition(":")
    question = json.loads(sys.stdin.read() if flags.question is None else flags.question)
    answer = ask_vllm(getattr(import_module(module), function), flags.seconds, **question)
    print(json.dumps(answer, indent=1))
    return int(isinstance(answer, dict) and "error" in answer)


if __name__ == "__main__":
    sys.exit(main())
