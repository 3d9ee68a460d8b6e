"""Records what vLLM loads where a model drafts for itself (MTP): weights of the layers that predict, and KV blocks.

It asks about architectures whose checkpoints bring such layers, with the configurations of ``registry.json.gz``:

    PYTHONPATH=src:lab nice python lab/record_drafts.py [ARCHITECTURE ...]
"""

from __future__ import annotations

import sys
from typing import Any

from ask_vllm import (
    MODELS,
    answers_in,
    ask_vllm,
    names_given,
    pretend,
    registry_entries,
    write_answers,
)

OUT = MODELS / "drafts.json.gz"
FIELDS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""How many layers predict, as one model or another calls it."""
LAYERS = {"default": 1, "small": 2}
"""How many there shall be, by the variant of the configuration."""
AVAILABLE = 24 << 30
TENSOR_PARALLEL = (1, 2)
ARCHITECTURES = (
    "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM", "Ernie4_5_MoeForCausalLM",
    "Exaone4_5_ForConditionalGeneration", "ExaoneMoEForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM",
    "GlmMoeDsaForCausalLM", "GlmOcrForConditionalGeneration", "HYV3ForCausalLM", "HYV4ForCausalLM",
    "InternS2PreviewForConditionalGeneration", "LongcatFlashForCausalLM", "MiMoForCausalLM", "MiMoV2FlashForCausalLM",
    "MiMoV2ForCausalLM", "MiniMaxM3SparseForConditionalGeneration", "NemotronHForCausalLM", "PanguUltraMoEForCausalLM",
    "Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForCausalLM",
    "Qwen3_5MoeForConditionalGeneration", "Step3p5ForCausalLM",
)  # fmt: skip


def main() -> int:
    """Ask about every architecture, and write the answers."""
    entries, known = registry_entries(), answers_in(OUT)
    names = names_given(__doc__, ARCHITECTURES)
    pretend()
    for name in names:
        cases = [each for each in entries[name]["cases"] if each["variant"] in LAYERS]
        known[name] = [_case(each["variant"], each["config"]) for each in cases]
        print(name, [each.get("error", "answered")[:150] for each in known[name]], flush=True)
    write_answers(OUT, known, available_bytes=AVAILABLE)
    return 0


def _case(variant: str, config: dict[str, Any]) -> dict[str, Any]:
    """The answer for a variant, or why there is none."""
    count = LAYERS[variant]
    counted = {**config, **dict.fromkeys(FIELDS, count)}
    if isinstance(config.get("text_config"), dict):
        counted["text_config"] = {**config["text_config"], **dict.fromkeys(FIELDS, count)}
    return {"variant": variant, "config": counted, **ask_vllm(drafting, 120, config=counted, count=count)}


def drafting(config: dict[str, Any], count: int) -> dict[str, Any]:
    """What is loaded to draft so many tokens, by the size of the tensor-parallel group."""
    from tokenyard.vllm.describing.stand_in import is_known, stand_in

    if not is_known(config["model_type"]):
        stand_in(config)
    return {"tensor_parallel": [_drafting(config, count, size) for size in TENSOR_PARALLEL]}


def _drafting(config: dict[str, Any], count: int, size: int) -> dict[str, Any]:
    """Bytes of the layers that predict, embedding and output head aside, which are the model's; and KV blocks."""
    import torch
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    from tokenyard.vllm.describing.built import BuiltModel, NoDevice

    torch.accelerator.current_device_index = lambda: 0
    built = BuiltModel(config, size, {"speculative_config": {"method": "mtp", "num_speculative_tokens": count}})
    asked = built.config.speculative_config
    draft = asked.draft_model_config
    theirs = asked.apply_draft_overrides(built.config)
    with set_default_torch_dtype(draft.dtype), torch.device("meta"), NoDevice():
        layers = initialize_model(theirs, model_config=draft)
    built.find_specs()
    own = [each for name, each in layers.named_parameters() if not name.endswith(_OF_THE_MODEL)]
    plan = built.plan(AVAILABLE)
    return {
        "tensor_parallel_size": size,
        "num_speculative_tokens": count,
        "max_model_len": built.config.model_config.max_model_len,
        "enable_prefix_caching": bool(built.config.cache_config.enable_prefix_caching),
        "async_scheduling": bool(built.config.scheduler_config.async_scheduling),
        "weight_bytes": sum(each.numel() * each.element_size() for each in own),
        "num_blocks": plan.get("num_blocks"),
        "tokens": plan.get("tokens"),
    }


_OF_THE_MODEL = ("embed_tokens.weight", "lm_head.weight", "shared_head.head.weight")

if __name__ == "__main__":
    sys.exit(main())
