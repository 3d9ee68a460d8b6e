"""Records what vLLM's own planner makes of every known model: groups, block sizes, blocks, capacity and weights.

Run it in an environment with vLLM's sources and torch; no GPU is needed, and no weights: models are built on torch's
``meta`` device under a pretended GPU. ``tests/unit/models`` compares its answers with ours.

    PYTHONPATH=src:lab python lab/record_kv_plans.py [--gpu NAME] [--only NAME ...] [--out FILE] [--tp N ...]
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenyard.models.gpus import GPUS
from tokenyard.vllm.describing.pretend_gpu import pretend_flashinfer, pretend_gpu, pretend_torchvision

REPO = Path(__file__).resolve().parent.parent
CONFIGS = REPO / "src" / "tokenyard" / "models" / "configs"
OUT = REPO / "tests" / "unit" / "models" / "kv_plans.json.gz"
AVAILABLE = (4 << 30, (24 << 30) + 12_345, 70 << 30)
"""Bytes for the KV cache on every GPU."""
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
    parser.add_argument("--verbose", action="store_true")
    flags = parser.parse_args()
    gpu = GPUS[flags.gpu]
    pretend_gpu(gpu.memory_bytes, gpu.compute_capability, f"NVIDIA {gpu.name.upper()}")
    pretend_torchvision()
    pretend_flashinfer()
    from tokenyard.vllm.describing.built import MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS, versions

    plans, failures = [], 0
    for question in _questions(flags):
        config = json.loads((CONFIGS / f"{question['model']}.json").read_text())
        try:
            plans.append({"model": question["model"], **_record(config, question)})
        except Exception as error:  # noqa: BLE001 - one model that cannot be built must not hide the others
            failures += 1
            name = f"{question['model']} tp={question['tensor_parallel_size']} {question['options']}"
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}")
            if flags.verbose:
                traceback.print_exc()
        gc.collect()
        print(question["model"], len(plans), file=sys.stderr)
    settings = {"max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS, "max_num_seqs": MAX_NUM_SEQS}
    recorded = {"versions": versions(), "gpu": gpu.name, "settings": settings, "plans": plans}
    text = json.dumps(recorded, indent=1, sort_keys=True)
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


def _record(config: dict[str, Any], question: dict[str, Any]) -> dict[str, Any]:
    from planner.ask import recorded
    from tokenyard.vllm.describing.built import BuiltModel
    from tokenyard.vllm.describing.stand_in import is_known, stand_in

    if not is_known(config["model_type"]):
        stand_in(config)
    size, options = question["tensor_parallel_size"], question["options"]
    available = (question["available_bytes"],) if "available_bytes" in question else AVAILABLE
    return {"options": options, **recorded(BuiltModel(config, size, options), size, available)}


if __name__ == "__main__":
    sys.exit(main())
