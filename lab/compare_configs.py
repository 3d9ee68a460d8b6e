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
import sys
from pathlib import Path
from typing import Any

from ask_vllm import AVAILABLE, around, ask_vllm, line_of, planned, pretend
from read_configs import files_under
from tokenyard.errors import ConfigError
from tokenyard.models.gpus import GPUS
from tokenyard.models.reading.read import model_from_config


def main() -> int:
    """Compare, and end with 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--tp", type=int, nargs="*", default=[1, 2, 8])
    parser.add_argument("--gpu", choices=GPUS, default="h100", help="by which vLLM chooses kernels (default: h100)")
    parser.add_argument("--record", type=Path, help="write the files and what vLLM answered, as JSON with gzip")
    flags = parser.parse_args()
    pretend(flags.gpu)
    from planner.draw import registry

    kinds, cases, counts = registry(), [], dict.fromkeys(("equal", "differs", "not built"), 0)
    files = [file for path in flags.paths for file in (files_under(path) if path.is_dir() else [path])]
    for file in files:
        config = json.loads(file.read_text())
        name = config["architectures"][0]
        options = {"runner": "pooling"} if kinds.get(name) == "pooling" else {}
        said = [_compared(config, size, options, flags.gpu) for size in flags.tp]
        outcome = _outcome(said)
        counts[outcome] += 1
        answers = [each["answer"] for each in said if each["answer"]]
        cases += [{"variant": file.stem, "config": config, "tensor_parallel": answers}] if answers else []
        lines = [f"TP {each['tp']}: {line}" for each in said for line in (*each["differs"], each["error"]) if line]
        print(f"{outcome}: {file.name} ({name})", *lines, sep="\n    ", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    if flags.record:
        content = {**around(flags.gpu), "cases": cases}
        flags.record.write_bytes(gzip.compress(json.dumps(content, sort_keys=True).encode(), mtime=0))
    return 1 if counts["differs"] else 0


def _outcome(said: list[dict[str, Any]]) -> str:
    if any(each["differs"] for each in said):
        return "differs"
    return "not built" if all(each["error"] for each in said) else "equal"


def _compared(config: dict[str, Any], size: int, options: dict[str, Any], gpu: str) -> dict[str, Any]:
    said: dict[str, Any] = ask_vllm(compared, config=config, size=size, options=options, gpu=gpu)
    return {"tp": size, "differs": [], "error": "", "answer": None} | said


def compared(config: dict[str, Any], size: int, options: dict[str, Any], gpu: str) -> dict[str, Any]:
    """What vLLM plans for one file and size, and what is otherwise here."""
    from tests.support.planner_answers import differences

    from tokenyard.vllm.describing.built import BuiltModel
    from tokenyard.vllm.describing.stand_in import is_known, stand_in

    try:
        if not is_known(config["model_type"]):
            stand_in(config)
        answer = planned(BuiltModel(config, size, options), size, AVAILABLE)
    except Exception as error:  # noqa: BLE001 - one file that cannot be built must not hide the others
        return {"error": line_of(error) + _ours(config)}
    entry = {
        "architecture": config["architectures"][0],
        "cases": [{"variant": "config.json", "config": config, "tensor_parallel": [answer]}],
    }
    at = f"config.json, tensor_parallel_size {size}: "
    return {"differs": [line.removeprefix(at) for line in differences(entry, around(gpu))], "answer": answer}


def _ours(config: dict[str, Any]) -> str:
    """Why a file that vLLM cannot build is not read here either; nothing where it is."""
    try:
        model_from_config(config, name="x", where="config.json")
    except ConfigError as error:
        return f" (not read here either: {' '.join(str(error).split())[:150]})"
    return " (read here)"


if __name__ == "__main__":
    sys.exit(main())
