"""Records what vLLM loads of multimodal models under ``--limit-mm-per-prompt``: weights, and which inputs they know.

Every model is built on the meta device with sizes as small as ``registry.json.gz`` has them, once without limits and
once for each set of inputs that a line may forbid:

    PYTHONPATH=src:lab nice python lab/record_limits.py [ARCHITECTURE ...]
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import multiprocessing
import sys
from pathlib import Path
from typing import Any

from tokenyard.models.gpus import GPUS
from tokenyard.vllm.describing.pretend_gpu import (
    pretend_flashinfer,
    pretend_gpu,
    pretend_tokenizer,
    pretend_torchvision,
)

MODELS = Path(__file__).resolve().parent.parent / "tests" / "unit" / "models"
OUT = MODELS / "limits.json.gz"
TABLE = MODELS.parents[2] / "src" / "tokenyard" / "models" / "recorded" / "inputs.json"
SECONDS = 90
FORBIDDEN = ("", "image", "image video", "audio", "image video audio", "vision_chunk")
"""Inputs that a line allows none of."""


def main() -> int:
    """Ask about every multimodal architecture, in a process of its own, and write the answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    gpu = GPUS["h100"]
    pretend_gpu(gpu.memory_bytes, gpu.compute_capability, f"NVIDIA {gpu.name.upper()}")
    pretend_torchvision()
    pretend_flashinfer()
    pretend_tokenizer()
    from tokenyard.vllm.describing.built import versions

    registry = json.loads(gzip.decompress((MODELS / "registry.json.gz").read_bytes()))
    entries = {each["architecture"]: each["cases"] for each in registry["architectures"] if each["kind"] != "pooling"}
    known: dict[str, Any] = json.loads(gzip.decompress(OUT.read_bytes()))["architectures"] if OUT.exists() else {}
    for name in parser.parse_args().names or sorted(entries):
        case = next((each for each in entries[name] if each["variant"] == "small"), None)
        answer = {} if case is None else _in_a_process(name, case["config"])
        if answer:
            known[name] = {"config": case and case["config"], **answer}
            print(name, answer.get("error") or {**answer, "config": None}, flush=True)
            recorded = {"versions": versions(), "architectures": known}
            OUT.write_bytes(gzip.compress(json.dumps(recorded, sort_keys=True).encode(), mtime=0))
    inputs = {name: _read_by_towers(each) for name, each in sorted(known.items()) if "inputs" in each}
    lines = [f" {json.dumps(name)}: {json.dumps(each)}" for name, each in inputs.items()]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(known)} architectures in {OUT}, {OUT.stat().st_size:,} bytes")
    return 0


def _read_by_towers(answer: dict[str, Any]) -> dict[str, list[str]]:
    """By the kind of a tower, what has to be forbidden for it to be left out; nothing where it is always loaded."""
    weights = answer["weight_bytes"]
    whole = weights[""]
    sound = whole - weights["audio"]
    vision = next(
        (
            forbidden.split()
            for forbidden in ("image", "vision_chunk", "image video", "image video audio")
            if weights.get(forbidden, whole) < whole - (sound if "audio" in forbidden else 0)
        ),
        [],
    )
    return {"audio": ["audio"] if sound else [], "vision": vision}


def _in_a_process(name: str, config: dict[str, Any]) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_ask, args=(name, config, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        answer = mine.recv() if mine.poll(SECONDS) else {"error": f"no answer within {SECONDS} s"}
    except EOFError:
        answer = {"error": "the process ended"}
    process.kill()
    process.join()
    return dict(answer)


def _ask(name: str, config: dict[str, Any], answers: Any) -> None:
    """Weights for every set of forbidden inputs; runs in the forked process."""
    logging.disable(logging.CRITICAL)
    from vllm.multimodal import MULTIMODAL_REGISTRY

    from planner.draw import config_class
    from planner.published import FILES, OPTIONS
    from tokenyard.vllm.describing.built import BuiltModel

    weights: dict[str, int] = {}
    inputs: list[str] = []
    try:
        config_class(name)  # registers what stands in where no class reads its files
        for forbidden in FORBIDDEN:
            limits = dict.fromkeys(forbidden.split(), 0)
            options = {**OPTIONS.get(name, {}), **({"limit_mm_per_prompt": limits} if limits else {})}
            built = BuiltModel(config, 1, options, files=FILES.get(name))
            weights[forbidden] = built.weights()[1]
            if not built.config.model_config.is_multimodal_model:
                answers.send({})
                return
            if not forbidden:
                info = MULTIMODAL_REGISTRY._create_processing_info(built.config.model_config, tokenizer=None)  # noqa: SLF001
                inputs = sorted(info.get_supported_mm_limits())
        answers.send({"inputs": inputs, "weight_bytes": weights})
    except Exception as error:  # noqa: BLE001 - one model that cannot be built must not hide the others
        answers.send(
            {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300], "weight_bytes": weights}
        )


if __name__ == "__main__":
    sys.exit(main())
