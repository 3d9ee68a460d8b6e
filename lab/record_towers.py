"""Records which matrices of encoders vLLM quantises where a file leaves nothing alone: by architecture, in towers.json.

Every multimodal architecture of the recorded registry is built with its recorded sizes and FP8 weights on torch's meta
device. Run it in an environment with vLLM's sources and torch:

    PYTHONPATH=src:lab nice python lab/record_towers.py [ARCHITECTURE ...]

A name with ``0`` for the number of a block stands for all blocks; beside it stands the share of all the tower's
parameters that these matrices are.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from ask_vllm import (
    RECORDED,
    ask_vllm,
    built_model,
    names_given,
    pretend,
    registry_entries,
    write_rows,
)

OUT = RECORDED / "towers.json"
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
    found = json.loads(OUT.read_text()) if OUT.exists() else {}
    entries = registry_entries("multimodal", "pooling", "transformers")
    names = names_given(__doc__, [name for name in entries if name not in found])
    pretend()
    for name in names:
        if name not in entries or not entries[name]["cases"]:
            continue
        said = ask_vllm(matrices, config=entries[name]["cases"][0]["config"], kind=entries[name]["kind"])
        print(name, said["error"][:150] if "error" in said else f"{sum(said.values()):.0%}", flush=True)
        if "error" not in said:
            found[name] = said
            write_rows(OUT, dict(sorted(found.items())))
    return 0


def matrices(config: dict[str, Any], kind: str) -> dict[str, float]:
    """The share that the matrices of a module are of all parameters outside the decoder, by its name."""
    import torch

    built = built_model({**config, "quantization_config": FP8}, 1, kind)
    inside = {id(each) for each in built.model.get_language_model().parameters()}
    sizes: dict[str, int] = {}
    whole = 0
    for parameter, tensor in built.model.named_parameters():
        if id(tensor) in inside:
            continue
        whole += tensor.numel()
        if tensor.dtype == torch.float8_e4m3fn:
            module = re.sub(r"\.\d+(?=\.|$)", ".0", parameter.removesuffix(".weight"))
            sizes[module] = sizes.get(module, 0) + tensor.numel()
    return {module: round(size / whole, 6) for module, size in sorted(sizes.items())} if whole else {}


if __name__ == "__main__":
    sys.exit(main())
