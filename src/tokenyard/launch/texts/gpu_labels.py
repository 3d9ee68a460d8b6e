"""Which GPU labels and instance types of clouds name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tokenyard.kv.sizing.gpus import GPUS, gpu_of_device
from tokenyard.launch.texts.started import Said

__all__ = ["gpu_named", "gpu_of_labels", "labels_of_pod", "labels_of_terms"]

_PRODUCT = (
    "nvidia.com/gpu.product",
    "gpu.nvidia.com/class",
    "gpu.nvidia.com/model",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "amd.com/gpu.product-name",
)
"""Labels whose value is a GPU, known here or not."""
_INSTANCE = (
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "karpenter.k8s.aws/instance-family",
)
_INSTANCES = (
    ("a100-40gb", r"p4d\b|a2-highgpu|a2-megagpu|standard_nd96asr"),
    ("a100-80gb", r"p4de\b|a2-ultragpu|standard_nd96amsr"),
    ("h100", r"p5\b|a3-highgpu|a3-megagpu|a3-edgegpu|standard_nd96isr_h100"),
    ("h200", r"p5en?\b|a3-ultragpu|standard_nd96isr_h200"),
    ("b200", r"p6-b200|a4-highgpu"),
    ("b300", r"p6-b300"),
    ("gb200", r"p6e-gb200|a4x-highgpu|standard_nd128isr_ndr_gb200"),
    ("l4", r"g6\b|gr6\b|g2-standard"),
    ("l40s", r"g6e\b"),
    ("rtxpro6000", r"g7e\b|g4-standard"),
)
"""What clouds call machines that have them (2026)."""
_OTHER_NAMES = {"nvidia-tesla-a100": "a100-40gb", "nvidia-l4": "l4", "nvidia-a100-80gb": "a100-80gb"}
_ANY = ("gpu", "accelerator")
_MOST = 200


def gpu_named(text: str) -> str | None:
    """Our name of a GPU that a label, a driver or a log names; None for one that is not known here."""
    short = text.strip().lower()[:_MOST]
    if short in GPUS:
        return short
    known = _OTHER_NAMES.get(short)
    if known is None:
        gpu = gpu_of_device(re.sub(r"[_\s-]+", " ", short))
        known = None if gpu is None else gpu.name
    return known


def gpu_of_labels(labels: Iterable[tuple[str, str]]) -> Said | None:
    """The GPU that labels of nodes ask for; None if none does. Where they name several, the value names all."""
    found: dict[str, str] = {}
    for label, value in labels:
        where = f"{label}={value[:_MOST]}"
        if label in _PRODUCT:
            found.setdefault(gpu_named(value) or value[:_MOST], where)
        elif label in _INSTANCE:
            gpu = _of_instance(value)
            if gpu is not None:
                found.setdefault(gpu, where)
        elif any(word in label.lower() for word in _ANY):
            gpu = gpu_named(value)
            if gpu is not None:
                found.setdefault(gpu, where)
    if not found:
        return None
    return Said(" or ".join(found), ", ".join(found.values()))


def _of_instance(kind: str) -> str | None:
    short = kind.lower()[:_MOST]
    found = [gpu for gpu, pattern in _INSTANCES if re.match(pattern, short)]
    # A name may begin like a shorter one: p5en is no p5.
    return found[-1] if found else None


def labels_of_pod(pod: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The labels that nodes of a pod must have: its nodeSelector, and what its affinity requires."""
    labels: list[tuple[str, str]] = []
    selector = pod.get("nodeSelector")
    if isinstance(selector, Mapping):
        labels += [(str(name), str(value)) for name, value in selector.items() if isinstance(value, str | int)]
    affinity: Any = pod.get("affinity")
    for name in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        affinity = affinity.get(name) if isinstance(affinity, Mapping) else None
    terms = affinity.get("nodeSelectorTerms") if isinstance(affinity, Mapping) else None
    return labels + labels_of_terms(terms)


def labels_of_terms(terms: Any) -> list[tuple[str, str]]:
    """Labels of ``nodeSelectorTerms``: those that must have one of the values that are named."""
    labels: list[tuple[str, str]] = []
    for term in terms if isinstance(terms, list) else ():
        expressions = term.get("matchExpressions") if isinstance(term, Mapping) else None
        for each in expressions if isinstance(expressions, list) else ():
            if isinstance(each, Mapping) and each.get("operator") == "In" and isinstance(each.get("values"), list):
                labels += [(str(each.get("key")), str(value)) for value in each["values"] if isinstance(value, str)]
    return labels
