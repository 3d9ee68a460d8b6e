"""Records which matrices of encoders vLLM quantises where a file leaves nothing alone: by architecture, in towers.json.

Every multimodal architecture of the recorded registry is built with its recorded sizes and FP8 weights on torch's meta
device. Run it in an environment with vLLM's sources and torch:

    PYTHONPATH=src:lab nice python lab/record_towers.py [ARCHITECTURE ...]

A name with ``0`` for the number of a block stands for all blocks; beside it stands the share of all the tower's
parameters that these matrices are.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import re
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

REPO = Path(__file__).resolve().parent.parent
REGISTRY = REPO / "tests" / "unit" / "models" / "registry.json.gz"
OUT = REPO / "src" / "tokenyard" / "models" / "recorded" / "towers.json"
SECONDS = 240
FP8 = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
            "input_activations": {
                "num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True,
            },
        },
    },
}  # fmt: skip


def main() -> int:
    """Ask about every multimodal architecture, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    flags = parser.parse_args()
    gpu = GPUS["h100"]
    pretend_gpu(gpu.memory_bytes, gpu.compute_capability, f"NVIDIA {gpu.name.upper()}")
    pretend_torchvision()
    pretend_flashinfer()
    pretend_tokenizer()
    from tokenyard.vllm.describing.built import BuiltModel  # noqa: F401 - loaded once, for all forked processes

    entries = json.loads(gzip.decompress(REGISTRY.read_bytes()))["architectures"]
    found = json.loads(OUT.read_text()) if OUT.exists() else {}
    for entry in entries:
        name = entry["architecture"]
        wanted = name in flags.names if flags.names else name not in found
        if not wanted or entry["kind"] not in ("multimodal", "pooling", "transformers") or not entry["cases"]:
            continue
        said = _in_a_process(entry["cases"][0]["config"], entry["kind"])
        print(name, said if isinstance(said, str) else f"{sum(said.values()):.0%}", flush=True)
        if isinstance(said, dict):
            found[name] = said
            _write(found)
    return 0


def _write(found: dict[str, dict[str, float]]) -> None:
    lines = [f" {json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(found.items())]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _in_a_process(config: dict[str, Any], kind: str) -> Any:
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_ask, args=(config, kind, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        said = mine.recv() if mine.poll(SECONDS) else "no answer"
    except EOFError:
        said = "its process ended"
    process.kill()
    process.join()
    return said


def _ask(config: dict[str, Any], kind: str, answers: Any) -> None:
    import logging

    import torch

    logging.disable(logging.CRITICAL)
    from planner.draw import config_class
    from planner.published import FILES, OPTIONS
    from tokenyard.vllm.describing.built import BuiltModel

    name = config["architectures"][0]
    options = {**({"runner": "pooling"} if kind == "pooling" else {}), **OPTIONS.get(name, {})}
    try:
        config_class(name)
        built = BuiltModel({**config, "quantization_config": FP8}, 1, options, files=FILES.get(name))
        decoder = built.model.get_language_model()
    except Exception as error:  # noqa: BLE001 - what cannot be built so is left out
        answers.send(f"{type(error).__name__}: {' '.join(str(error).split())}"[:150])
        return
    inside = {id(each) for each in decoder.parameters()}
    sizes: dict[str, int] = {}
    whole = 0
    for parameter, tensor in built.model.named_parameters():
        if id(tensor) in inside:
            continue
        whole += tensor.numel()
        if tensor.dtype == torch.float8_e4m3fn:
            module = re.sub(r"\.\d+(?=\.|$)", ".0", parameter.removesuffix(".weight"))
            sizes[module] = sizes.get(module, 0) + tensor.numel()
    answers.send({module: round(size / whole, 6) for module, size in sorted(sizes.items())} if whole else {})


if __name__ == "__main__":
    sys.exit(main())
