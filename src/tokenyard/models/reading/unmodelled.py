"""Fields that nobody asked for: which of them might change memory or time.

A field that neither a family nor the list of harmless ones knows, and whose name says that it may matter, is an error
that names it, or a note where ``--ignore-unmodelled`` asks for that. A wrong answer that looks right is worse.
"""

from __future__ import annotations

import re
from typing import Any

from tokenyard.models.reading.fields import Fields
from tokenyard.models.reading.parts import Reading

__all__ = ["check_unread"]

_MATTERS = re.compile(
    r"window|layer|expert|head|dim$|_dim|_size$|rank|interval|period|pattern|mamba|ssm|conv|linear|kv_|^num_|quant|share"
    r"|lora|state|chunk|moe|mlp|attn|attention|sparse|block|index|adapter|depth|hidden"
)
"""What a name has in it if the field may matter."""

_HARMLESS = frozenset(
    [
        "apply_spec_augment",
        "attention_dropout",
        "attention_in_multiplier",
        "attention_multiplier",
        "attention_out_multiplier",
        "attention_probs_dropout_prob",
        "attn_logit_softcapping",
        "attn_pdrop",
        "attn_scale",
        "attn_temperature_tuning",
        "audio_config",
        "cache_implementation",
        "chunk_size_feed_forward",
        "classifier_proj_size",
        "decoder_layerdrop",
        "encoder_layerdrop",
        "ep_size",
        "expert_bias_update_rate",
        "final_logit_softcapping",
        "floor_scale",
        "for_llm_compressor",
        "head_bias",
        "head_dim",
        "hidden_act",
        "hidden_activation",
        "hidden_dropout",
        "hidden_dropout_prob",
        "image_token_id",
        "image_token_index",
        "index_topk_freq",
        "initializer_range",
        "is_encoder_decoder",
        "layer_norm_eps",
        "layer_norm_epsilon",
        "layernorm_epsilon",
        "lm_head_bias",
        "lm_head_multiplier",
        "logits_scaling",
        "mamba_act",
        "mamba_hidden_act",
        "mamba_norm_before_gate",
        "mask_feature_length",
        "mask_feature_prob",
        "max_source_positions",
        "max_window_layers",
        "median_filter_width",
        "mlp_hidden_act",
        "mlp_multipliers",
        "moe_aux_loss_coeff",
        "moe_router_dtype",
        "multimodal_projector_bias",
        "n_group",
        "no_rope_layer_interval",
        "norm_topk_prob",
        "normalization_function",
        "num_attention_sink",
        "num_hidden_layers",
        "num_labels",
        "num_logits_to_keep",
        "num_nextn_predict_layers",
        "order_of_interleaved_layers",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "position_embedding_type",
        "pretraining_tp",
        "projector_hidden_act",
        "projectors_bias",
        "qk_norm_type",
        "query_pre_attn_scalar",
        "residual_in_fp32",
        "rope_scaling",
        "rotary_dim",
        "router_aux_loss_coef",
        "router_jitter_noise",
        "seq_aux",
        "ssm_in_multiplier",
        "ssm_multipliers",
        "ssm_out_multiplier",
        "tie_encoder_decoder",
        "time_step_limit",
        "topk_group",
        "use_cache",
        "use_embedding_sharing",
        "use_mambapy",
        "use_parallel_block",
        "use_parallel_embedding",
        "use_weighted_layer_sum",
        "video_token_id",
        "vision_config",
        "vision_feature_layer",
        "vision_feature_select_strategy",
    ]
)
"""Names that look as if they mattered and do not."""


def check_unread(reading: Reading) -> None:
    """Raise the error for the first field of the file that may matter and that nobody has read, or note them all."""
    sections = [reading.fields] if reading.outer is reading.fields else [reading.fields, reading.outer]
    for section in sections:
        for name, value in section.unread().items():
            if _MATTERS.search(name) and name not in _HARMLESS and _says_something(value):
                _report(reading, section, name)


def _says_something(value: Any) -> bool:
    return value not in (None, False, 0, "", [], {}, 0.0)


def _report(reading: Reading, section: Fields, name: str) -> None:
    if not reading.ignore:
        raise section.error(
            name, "is not modelled and may change memory or time: --ignore-unmodelled goes on without it"
        )
    reading.ignored.append(f"{name} = {section.get(name)!r}")
