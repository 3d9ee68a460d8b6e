"""Records what vLLM's own planner makes of every known model: groups, block sizes, blocks, capacity and weights.

Run it in an environment with vLLM's sources and torch; no GPU is needed, and no weights: models are built on torch's
``meta`` device under a pretended GPU. ``tests/unit/models`` compares its answers with ours.

    PYTHONPATH=src:lab python lab/record_kv_plans.py [--gpu NAME] [--only NAME ...] [--out FILE] [--tp N ...]
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ask_vllm import AVAILABLE, MODELS, ROOT, around, ask_vllm, planned, pretend
from tokenyard.models.gpus import GPUS

CONFIGS = ROOT / "src" / "tokenyard" / "models" / "configs"
OUT = MODELS / "kv_plans.json.gz"
TENSOR_PARALLEL = (1, 2, 8)


def main() -> int:
    """Record, and say what could not be built."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--tp", nargs="*", type=int, default=list(TENSOR_PARALLEL))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--gpu", choices=GPUS, default="h100", help="by which vLLM chooses kernels (default: h100)")
    parser.add_argument("--kv-cache-dtype", nargs="*", default=None, help="to record instead of the default")
    parser.add_argument("--questions", type=Path, help="a file of lab/generate_deployments.py")
    flags = parser.parse_args()
    pretend(flags.gpu, tokenizer=False)
    plans, failures = [], 0
    for question in _questions(flags):
        answer = ask_vllm(kv_plans, **question)
        if "error" in answer:
            failures += 1
            print(f"{question['model']} tp={question['tensor_parallel_size']} {question['options']}: {answer['error']}")
        else:
            plans.append({"model": question["model"], **answer})
        print(question["model"], len(plans), file=sys.stderr)
    text = json.dumps({**around(flags.gpu), "plans": plans}, indent=1, sort_keys=True)
    flags.out.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(plans)} plans in {flags.out}, {failures} not recorded")
    return 1 if failures else 0


def _variants(config: dict[str, Any], dtypes: list[str] | None) -> list[dict[str, Any]]:
    """Options to record: dtypes that are asked for, else vLLM's defaults, and prefix caching where states are kept."""
    if dtypes is not None:
        return [{"kv_cache_dtype": dtype} for dtype in dtypes]
    text = config.get("text_config", config)
    hybrid = any("mamba" in key or "linear" in key or "hybrid" in key for key in text)
    return [{}, {"enable_prefix_caching": True}, {"enable_prefix_caching": False}] if hybrid else [{}]


def _questions(flags: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Models, sizes of the tensor-parallel group, options and memory to ask about."""
    if flags.questions is not None:
        yield from json.loads(flags.questions.read_text())
        return
    for file in sorted(CONFIGS.glob("*.json")):
        if flags.only is not None and file.stem not in flags.only:
            continue
        for size in flags.tp:
            for options in _variants(json.loads(file.read_text()), flags.kv_cache_dtype):
                yield {"model": file.stem, "tensor_parallel_size": size, "options": options}


def kv_plans(
    model: str, tensor_parallel_size: int, options: dict[str, Any], available_bytes: int | None = None
) -> dict[str, Any]:
    """What vLLM plans for a known model."""
    from tokenyard.vllm.describing.built import BuiltModel
    from tokenyard.vllm.describing.stand_in import is_known, stand_in

    config = json.loads((CONFIGS / f"{model}.json").read_text())
    if not is_known(config["model_type"]):
        stand_in(config)
    available = AVAILABLE if available_bytes is None else (available_bytes,)
    built = BuiltModel(config, tensor_parallel_size, options)
    return {"options": options, **planned(built, tensor_parallel_size, available)}


if __name__ == "__main__":
    sys.exit(main())
