"""Settings of quantisation as published checkpoints have them, put into files of known models.

    python -m planner.quantized FOLDER

writes the files; ``scripts/compare_configs.py FOLDER --record tests/unit/models/quantized.json.gz --tp 2`` asks vLLM.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).resolve().parents[2] / "src" / "tokenyard" / "models" / "configs"


def _tensors(groups: Sequence[dict[str, Any]], ignore: Sequence[str] = ("lm_head",), **others: Any) -> dict[str, Any]:
    named = {f"group_{i}": group for i, group in enumerate(groups)}
    return {
        "quant_method": "compressed-tensors", "config_groups": named, "ignore": list(ignore), "kv_cache_scheme": None,
        "quantization_status": "compressed", "sparsity_config": {}, "transform_config": {}, "version": "0.12.2",
        "global_compression_ratio": None, "format": "mixed-precision" if len(groups) > 1 else groups[0]["format"],
        **others,
    }  # fmt: skip


def _numbers(bits: int, kind: str = "int", strategy: str = "channel", **others: Any) -> dict[str, Any]:
    return {
        "num_bits": bits, "type": kind, "strategy": strategy, "actorder": None, "block_structure": None,
        "dynamic": False, "group_size": None, "observer": "minmax", "observer_kwargs": {}, "symmetric": True, **others,
    }  # fmt: skip


def _group(
    weights: dict[str, Any], form: str, activations: dict[str, Any] | None = None, targets: Sequence[str] = ("Linear",)
) -> dict[str, Any]:
    return {
        "format": form, "input_activations": activations, "output_activations": None, "targets": list(targets),
        "weights": weights,
    }  # fmt: skip


def _quark(numbers: dict[str, Any], activations: dict[str, Any], exclude: Sequence[str]) -> dict[str, Any]:
    return {
        "quant_method": "quark", "layer_quant_config": {}, "layer_type_quant_config": {}, "exclude": list(exclude),
        "export": {"kv_cache_group": [], "pack_method": "reorder"}, "algo_config": None, "quant_mode": "eager_mode",
        "softmax_quant_spec": None, "kv_cache_quant_config": {}, "kv_cache_post_rope": False, "version": "0.11",
        "global_quant_config": {
            "bias": None, "output_tensors": None, "weight": {**numbers, "is_dynamic": False}, "input_tensors": {
                **numbers, **activations,
            },
        },
    }  # fmt: skip


def _modelopt(algorithm: str, ignore: Sequence[str], **others: Any) -> dict[str, Any]:
    producer = {"name": "modelopt", "version": "0.40.0"}
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": list(ignore), "producer": producer, **others}


_BY_TOKEN = _numbers(8, "float", "token", dynamic=True)
_NVFP4 = _numbers(4, "float", "tensor_group", group_size=16)
_NVFP4_INPUT = {**_NVFP4, "dynamic": "local"}
_INT4 = _numbers(4, strategy="group", group_size=128)
_INT8 = _numbers(8, strategy="group", group_size=128)
_FLOAT8 = _numbers(8, "float")
_GATE = "re:.*mlp.gate$"
_PACKED = "pack-quantized"
_GPTQ = {
    "quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq", "damp_percent": 0.01, "desc_act": False,
    "group_size": 128, "lm_head": False, "meta": {"quantizer": "gptqmodel:1.0"}, "static_groups": False, "sym": True,
    "true_sequential": True,
}  # fmt: skip
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
_AUTOROUND = {
    "quant_method": "auto-round", "bits": 4, "data_type": "int", "group_size": 128, "sym": True, "iters": 200,
    "packing_format": "auto_round:auto_gptq", "autoround_version": "0.9.0",
}  # fmt: skip
_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
_QUARK_FLOAT4 = {
    "dtype": "fp4", "qscheme": "per_group", "ch_axis": -1, "group_size": 32, "scale_format": "e8m0",
    "scale_type": "float", "symmetric": None,
}  # fmt: skip
_QUARK_FLOAT8 = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "ch_axis": None, "group_size": None, "symmetric": True}

SETTINGS: dict[str, dict[str, Any]] = {
    "awq": {**_AWQ, "modules_to_not_convert": None},
    "awq-words": {**_AWQ, "modules_to_not_convert": ["visual", "vision_tower", "mlp.gate"]},
    "gptq": {**_GPTQ, "dynamic": None, "act_group_aware": True, "damp_auto_increment": 0.0025, "mse": 0.0},
    "gptq-int8": {**_GPTQ, "bits": 8, "group_size": -1, "exllama_config": {"version": 1}},
    "gptq-left-alone": {
        **_GPTQ, "dynamic": {
            "lm_head": {}, "model.language_model.embed_tokens": {}, "-:.*attn.*": {}, "-:.*shared_expert.*": {},
            "-:.*mtp.*": {}, "-:.*visual.*": {},
        },
    },
    "gptq-other-bits": {
        **_GPTQ, "dynamic": {
            r"+:.*\.(?:1[0-5])\..*": {"bits": 8}, r".*\.down_proj.*": {"bits": 8, "group_size": 32},
        },
    },
    "gptq-chosen": {
        **_GPTQ, "modules_in_block_to_quantize": [
            ["self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj"], ["self_attn.o_proj"],
        ],
    },
    "fp8-blocks": _FP8,
    "fp8-left-alone": {
        **_FP8, "modules_to_not_convert": [
            "lm_head", "model.layers.0.mlp.gate", "model.layers.1.self_attn",
            *(f"model.layers.2.self_attn.{name}_proj" for name in "qkv"),
        ],
    },
    "fp8-static": {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]},
    "tensors-fp8": _tensors([_group(_FLOAT8, "float-quantized", _BY_TOKEN)]),
    "tensors-fp8-all": _tensors([_group(_FLOAT8, "float-quantized", _BY_TOKEN)], ()),
    "tensors-fp8-blocks": _tensors(
        [_group(_numbers(8, "float", "block", block_structure=[128, 128]), "float-quantized", {
            **_BY_TOKEN, "strategy": "group", "group_size": 128,
        })]
    ),
    "tensors-int8": _tensors([_group(_numbers(8), "int-quantized", _numbers(8, strategy="token", dynamic=True))]),
    "tensors-int4": _tensors([_group(_INT4, _PACKED)]),
    "tensors-int4-zero-points": _tensors([_group({**_INT4, "symmetric": False}, _PACKED)]),
    "tensors-int4-channels": _tensors([_group(_numbers(4), _PACKED)]),
    "tensors-int4-left-alone": _tensors(
        [_group({**_INT4, "group_size": 32}, _PACKED)], ["lm_head", _GATE, "re:visual.*", "re:.*linear_attn.*"]
    ),
    "tensors-nvfp4": _tensors([_group(_NVFP4, "nvfp4-pack-quantized", _NVFP4_INPUT)], ["lm_head", _GATE]),
    "tensors-nvfp4-weights": _tensors([_group(_NVFP4, "nvfp4-pack-quantized")]),
    "tensors-mxfp4": _tensors([_group(_numbers(4, "float", "group", group_size=32), "mxfp4-pack-quantized")]),
    "tensors-fp8-attention-nvfp4-mlp": _tensors(
        [
            _group(_FLOAT8, "float-quantized", _BY_TOKEN, ["re:.*self_attn.(q|k|v|o)_proj$"]),
            _group(_NVFP4, "nvfp4-pack-quantized", _NVFP4_INPUT, ["re:.*mlp.*(gate|up|down|gate_up)_proj$"]),
        ],
        ["lm_head", _GATE],
    ),
    "tensors-int4-experts-int8-attention": _tensors(
        [
            _group(_INT4, _PACKED, None, ["re:.*mlp.experts.*"]),
            _group(_numbers(8), _PACKED, None, ["re:.*self_attn.*"]),
        ]
    ),
    "tensors-int8-down": _tensors(
        [
            _group(_INT4, _PACKED, None, ["re:.*gate_proj.*", "re:.*up_proj.*", "re:.*gate_up_proj.*"]),
            _group(_INT8, _PACKED, None, ["re:.*down_proj.*", "re:.*self_attn.*"]),
        ]
    ),
    "modelopt-fp8": _modelopt("FP8", ["lm_head"], kv_cache_scheme={"dynamic": False, "num_bits": 8, "type": "float"}),
    "modelopt-nvfp4": _modelopt("NVFP4", ["lm_head", "model.layers.0.self_attn*", "*mlp.gate", "model.layers.3.mlp*"]),
    "modelopt-nvfp4-head": _modelopt("NVFP4", ["*self_attn*"], group_size=16),
    "modelopt-fp8-blocks": _modelopt("FP8_PB_WO", ["lm_head"]),
    "modelopt-fp8-channels": _modelopt("FP8_PER_CHANNEL_PER_TOKEN", ["lm_head"]),
    "modelopt-mxfp8": _modelopt("MXFP8", ["lm_head"]),
    "autoround": _AUTOROUND,
    "autoround-named": {
        **_AUTOROUND, "extra_config": {
            **{f"model.layers.{i}.mlp.gate": {"bits": 16, "data_type": "fp", "group_size": -1} for i in range(64)},
            **{f"model.layers.{i}.self_attn.{name}_proj": {"bits": 8} for i in range(64) for name in "qkvo"},
        },
    },
    "autoround-patterns": {
        **_AUTOROUND, "extra_config": {
            f".*{name}.*": {"bits": 16} for name in ("shared_expert", "self_attn", "linear_attn")
        },
    },
    "autoround-mxfp4": {
        **_AUTOROUND, "data_type": "mx_fp", "group_size": 32, "packing_format": "auto_round:llm_compressor",
        "act_bits": 4, "act_data_type": "mx_fp", "act_group_size": 32, "act_sym": True, "act_dynamic": True,
    },
    "quark-fp8": _quark(_QUARK_FLOAT8, {"is_dynamic": False}, ["lm_head"]),
    "quark-mxfp4": _quark(_QUARK_FLOAT4, {"is_dynamic": True}, ["lm_head", "re:.*self_attn.*", _GATE]),
    "mxfp4": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
}  # fmt: skip
"""What stands in ``quantization_config``."""
_WITH_TOWERS = ("gptq-left-alone", "tensors-int4-left-alone")
"""Methods that leave towers alone, as published files do: here towers are never quantised."""
MODELS = {
    "llama-3.1-8b": (*SETTINGS,),
    "qwen3-30b-a3b": (*SETTINGS,),
    "qwen3.5-35b-a3b": _WITH_TOWERS,
    "glm-4.5-air": (*_WITH_TOWERS, "tensors-fp8", "gptq", "autoround-patterns"),
}


def main() -> int:
    """Write the files."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for model, names in MODELS.items():
        content = json.loads((CONFIGS / f"{model}.json").read_text())
        for name in names:
            file = folder / f"{model}.{name}.json"
            file.write_text(json.dumps({**content, "quantization_config": SETTINGS[name]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
