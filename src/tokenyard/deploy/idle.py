"""Flags that are not modelled, and that change nothing in this very deployment: it has nothing that they could change,
or they say what vLLM does by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from tokenyard.core.config import GroupKind, MambaCacheMode
from tokenyard.deploy.resolve import ResolvedSettings
from tokenyard.deploy.vllm_serve.flags import KNOWN
from tokenyard.deploy.vllm_serve.given import GivenFlags
from tokenyard.models.gpus import GPU
from tokenyard.models.mixers import LatentAttention, SoftmaxAttention
from tokenyard.models.spec import ModelSpec

_BACKENDS: tuple[tuple[str, int, str, str], ...] = tuple(tuple(row) for row in KNOWN["attention_backends"])
"""Kind of attention, major compute capability, dtype of KV (its beginning), and the kernels that vLLM chooses."""
_HOPPER = 9
_LARGEST_HEAD = 256
"""Elements of a head that FlashAttention's kernels take."""
_TRITON_BEFORE_HOPPER = ("GptOssForCausalLM",)
"""Architectures with sinks, which FlashAttention reads from Hopper on."""


def with_idle_flags(asked: GivenFlags, settled: ResolvedSettings) -> GivenFlags:
    """The flags that were given, of which each that changes nothing in the ``settled`` deployment says why."""
    facts = frozenset(_lacks(settled))
    backend = attention_backend(settled.model, settled.gpu, settled.plan.kv_cache_dtype)
    given = []
    for each in asked.given:
        idle = next((where for where in each.flag.idle_where if where in facts), "")
        if each.flag.name == "attention-backend" and backend is not None and str(each.value).upper() == backend:
            idle = f"vLLM's own choice on {settled.gpu.name}"
        given.append(msgspec.structs.replace(each, idle=idle))
    return replace(asked, given=tuple(given))


def _lacks(settled: ResolvedSettings) -> Iterator[str]:
    """What the deployment does not have, in the words of ``idle`` in ``flags.toml``."""
    model, parallel, plan = settled.model, settled.parallel, settled.plan
    kinds = {group.first.kind for group in plan.groups}
    lacks = {
        "one GPU has each layer": settled.hardware.tensor_parallel_size == 1,
        "the model keeps no states": not model.has_states,
        "states are kept where blocks of KV end": plan.mamba_cache_mode is MambaCacheMode.ALIGN,
        "the model has no experts": not model.has_experts,
        "there is one engine": parallel.data_parallel_size == 1,
        "each GPU has the KV of whole sequences": parallel.decode_context_parallel_size == 1,
        "there are no adapters": not settled.adapters.enable_lora,
        "all layers share their blocks": len(plan.groups) <= 1,
        "no layer has a window": not kinds & {GroupKind.SLIDING_WINDOW, GroupKind.CHUNKED_LOCAL},
        "KV is not quantised": not plan.kv_cache_dtype.startswith("fp8"),
        "no encoder is loaded": not model.encoders,
    }
    return (words for words, is_so in lacks.items() if is_so)


def attention_backend(model: ModelSpec, gpu: GPU, kv_cache_dtype: str) -> str | None:
    """The kernels that vLLM chooses for attention, by vLLM's name; None where that is not known here."""
    major = gpu.compute_capability[0]
    mixers = [mixer for layer, _ in model.layer_counts for mixer in layer.mixers]
    attention = [mixer for mixer in mixers if isinstance(mixer, SoftmaxAttention | LatentAttention)]
    kinds = {type(mixer) for mixer in attention}
    if (
        len(kinds) != 1
        or any(mixer.indexer for mixer in attention)
        or (model.encoders and model.images_attend_both_ways)
    ):
        return None
    softmax = [mixer for mixer in attention if isinstance(mixer, SoftmaxAttention)]
    if any(mixer.head_size > _LARGEST_HEAD or mixer.value_size != mixer.head_size for mixer in softmax):
        return None
    if model.architecture in _TRITON_BEFORE_HOPPER and major < _HOPPER:
        return None
    kind = "softmax" if softmax else "latent"
    found = (name for k, on, of, name in _BACKENDS if k == kind and on == major and kv_cache_dtype.startswith(of))
    return next(found, None)
