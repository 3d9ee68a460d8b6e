"""Compares what config.json files come to with what vLLM builds of them and plans for them, file by file.

Run it in an environment with vLLM's sources and torch; no GPU and no weights are needed (``lab/planner``):

    PYTHONPATH=src:lab:. nice python lab/compare_configs.py FILE_OR_FOLDER ... [--tp N ...] [--record FILE]

Every file is built in a process of its own, for each size of the tensor-parallel group. A line each says that weights,
groups, blocks and capacity are equal, what differs, why it is not read here, or why vLLM cannot build it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

from read_configs import files_under
from tokenyard.errors import ConfigError
from tokenyard.models.gpus import GPUS
from tokenyard.models.reading.read import model_from_config
from tokenyard.vllm.describing.pretend_gpu import (
    pretend_flashinfer,
    pretend_gpu,
    pretend_tokenizer,
    pretend_torchvision,
)

AVAILABLE = (4 << 30, (24 << 30) + 12_345, 70 << 30)
SECONDS = 240
"""For one file and size."""


def main() -> int:
    """Compare, and end with 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--tp", type=int, nargs="*", default=[1, 2, 8])
    parser.add_argument("--gpu", choices=GPUS, default="h100", help="by which vLLM chooses kernels (default: h100)")
    parser.add_argument("--record", type=Path, help="write the files and what vLLM answered, as JSON with gzip")
    flags = parser.parse_args()
    gpu = GPUS[flags.gpu]
    pretend_gpu(gpu.memory_bytes, gpu.compute_capability, f"NVIDIA {gpu.name.upper()}")
    pretend_torchvision()
    pretend_flashinfer()
    pretend_tokenizer()
    from planner.draw import registry
    from tokenyard.vllm.describing.built import BuiltModel  # noqa: F401 - loaded once, for all forked processes

    kinds, cases, counts = registry(), [], dict.fromkeys(("equal", "differs", "not built"), 0)
    files = [file for path in flags.paths for file in (files_under(path) if path.is_dir() else [path])]
    for file in files:
        config = json.loads(file.read_text())
        name = config["architectures"][0]
        options = {"runner": "pooling"} if kinds.get(name) == "pooling" else {}
        said = [_in_a_process(config, size, options, flags.gpu) for size in flags.tp]
        outcome = _outcome(said)
        counts[outcome] += 1
        answers = [each["answer"] for each in said if each["answer"]]
        cases += [{"variant": file.stem, "config": config, "tensor_parallel": answers}] if answers else []
        lines = [f"TP {each['tp']}: {line}" for each in said for line in (*each["differs"], each["error"]) if line]
        print(f"{outcome}: {file.name} ({name})", *lines, sep="\n    ", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    if flags.record:
        content = {**_around(flags.gpu), "cases": cases}
        flags.record.write_bytes(gzip.compress(json.dumps(content, sort_keys=True).encode(), mtime=0))
    return 1 if counts["differs"] else 0


def _outcome(said: list[dict[str, Any]]) -> str:
    if any(each["differs"] for each in said):
        return "differs"
    return "not built" if all(each["error"] for each in said) else "equal"


def _in_a_process(config: dict[str, Any], size: int, options: dict[str, Any], gpu: str) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_ask, args=(config, size, options, gpu, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        said: dict[str, Any] = mine.recv() if mine.poll(SECONDS) else {"error": f"no answer within {SECONDS} s"}
    except EOFError:
        said = {"error": "its process ended without an answer"}
    process.kill()
    process.join()
    return {"tp": size, "differs": [], "error": "", "answer": None} | said


def _ask(config: dict[str, Any], size: int, options: dict[str, Any], gpu: str, answers: Any) -> None:
    """Build one file for one size, and compare; runs in the forked process."""
    import logging

    logging.disable(logging.CRITICAL)
    from tests.support.planner_answers import differences

    from planner.ask import recorded
    from tokenyard.vllm.describing.built import BuiltModel
    from tokenyard.vllm.describing.stand_in import is_known, stand_in

    try:
        if not is_known(config["model_type"]):
            stand_in(config)
        answer = recorded(BuiltModel(config, size, options), size, AVAILABLE)
    except Exception as error:  # noqa: BLE001 - one file that cannot be built must not hide the others
        ours = _ours(config)
        answers.send({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300] + ours})
        return
    entry = {
        "architecture": config["architectures"][0],
        "cases": [{"variant": "config.json", "config": config, "tensor_parallel": [answer]}],
    }
    at = f"config.json, tensor_parallel_size {size}: "
    differs = [line.removeprefix(at) for line in differences(entry, _around(gpu))]
    answers.send({"differs": differs, "answer": answer})


def _around(gpu: str) -> dict[str, Any]:
    from tokenyard.vllm.describing.built import MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS, versions

    settings = {"max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS, "max_num_seqs": MAX_NUM_SEQS}
    return {"versions": versions(), "gpu": gpu, "settings": settings}


def _ours(config: dict[str, Any]) -> str:
    """Why a file that vLLM cannot build is not read here either; nothing where it is."""
    try:
        model_from_config(config, name="x", where="config.json")
    except ConfigError as error:
        return f" (not read here either: {' '.join(str(error).split())[:150]})"
    return " (read here)"


if __name__ == "__main__":
    sys.exit(main())
