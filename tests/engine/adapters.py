"""Random LoRA adapters in peft's files, and the models that they are merged into."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from tests.engine.needs_torch import torch
from tests.engine.tiny_models import Checkpoint

__all__ = ["make_adapter", "merged"]

ATTENTION = ("q_proj", "v_proj")
ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def make_adapter(
    checkpoint: Checkpoint, folder: Path, *, targets: tuple[str, ...] = ATTENTION, rank: int = 4, **config: Any
) -> Path:
    """Weights that change what the model says, from a seed that depends on the folder's name."""
    generator = torch.Generator().manual_seed(sum(folder.name.encode()))
    tensors = {}
    for path, module in checkpoint.model.named_modules():
        if isinstance(module, torch.nn.Linear) and path.split(".")[-1] in targets:
            outputs, inputs = module.weight.shape
            for half, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
                weight = torch.randn(shape, generator=generator, dtype=torch.float64) * 0.3
                tensors[f"base_model.model.{path}.lora_{half}.weight"] = weight
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    given = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 8,
        "target_modules": list(targets),
        "use_rslora": False,
        "bias": "none",
        "task_type": "CAUSAL_LM",
        "lora_dropout": 0.1,
        "init_lora_weights": True,
        "modules_to_save": None,
        "rank_pattern": {},
    }
    (folder / "adapter_config.json").write_text(json.dumps(given | config))
    return folder


def merged(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """The model with the adapter's weights added to its own, by the formula alone."""
    config = json.loads((folder / "adapter_config.json").read_text())
    root = math.sqrt(config["r"]) if config["use_rslora"] else config["r"]
    tensors = load_file(folder / "adapter_model.safetensors")
    model = copy.deepcopy(checkpoint.model)
    for key, down in tensors.items():
        if ".lora_A." not in key:
            continue
        module = model.get_submodule(key.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
        up = tensors[key.replace("lora_A", "lora_B")]
        module.weight.data += config["lora_alpha"] / root * (up @ down)
    return Checkpoint(checkpoint.family, checkpoint.folder, model)
