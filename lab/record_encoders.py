"""Records what vLLM builds of encoders: parameters of every part, of every list of blocks, and under both TP modes.

Every architecture that sees or hears is built on the meta device with its recorded sizes, by itself and as the first
of two ranks that share the encoder's weights, or its work (``--mm-encoder-tp-mode data``):

    PYTHONPATH=src:lab nice python lab/record_encoders.py [ARCHITECTURE ...]

Its answers are in ``tests/unit/models/encoders.json.gz``; which classes share the work is in ``encoder_modes.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from ask_vllm import (
    MODELS,
    RECORDED,
    answers_in,
    ask_vllm,
    built_model,
    line_of,
    names_given,
    pretend,
    registry_entries,
    write_answers,
)

OUT = MODELS / "encoders.json.gz"
KINDS = ("multimodal", "pooling")
"""Architectures that run transformers' own code."""
VARIANTS = ("default", "small")


def main() -> int:
    """Ask about every architecture, and write the answers and the table."""
    known = answers_in(OUT)
    entries = {name: entry for name, entry in registry_entries().items() if _may_see(entry)}
    names = names_given(__doc__, sorted(set(entries) - set(known)))
    pretend()
    for name in names:
        configs = [each["config"] for each in entries[name]["cases"] if each["variant"] in VARIANTS]
        answer = _answer(entries[name]["kind"], configs)
        if answer:
            known[name] = answer
            print(name, answer.get("error") or [case["parts"] for case in answer["cases"][:1]], flush=True)
            write_answers(OUT, known, quiet=True)
    write_answers(OUT, known)
    shares = sorted(name for name, each in known.items() if each.get("shares_work"))
    (RECORDED / "encoder_modes.json").write_text(json.dumps(shares, indent=1) + "\n")
    print(f"{len(shares)} may share the work")
    return 0


def _may_see(entry: dict[str, Any]) -> bool:
    """Whether it may see or hear: some that the registry has among text do."""
    return entry["kind"] in KINDS or (
        entry["kind"] == "text" and any("vision_config" in case["config"] for case in entry["cases"])
    )


def _answer(kind: str, configs: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer for each configuration, in a process each: what was divided by images leaves traces. None of text."""
    whole: dict[str, Any] = {}
    for config in configs:
        said = ask_vllm(encoder, 300, config=config, kind=kind)
        if "case" in said:
            whole.setdefault("cases", []).append(said.pop("case"))
        whole |= said
    return whole


def encoder(config: dict[str, Any], kind: str) -> dict[str, Any]:
    """Parts, and weights for both modes; nothing of a model of text."""
    built = built_model(config, 1, kind)
    if not built.config.model_config.is_multimodal_model:
        return {}
    outside = _outside(built.model)
    weights: dict[str, Any] = {}
    case = {"config": config, "parts": _parts(outside), "lists": dict(_lists(built.model, outside))}
    answer: dict[str, Any] = {"case": {**case, "weight_bytes": weights}}
    for mode in ("weights", "data"):
        try:
            shared = built_model(config, 2, kind, mm_encoder_tp_mode=mode)
        except Exception as error:  # noqa: BLE001 - what is not shared out is not, whatever the mode
            weights[mode] = line_of(error)[:200]
            continue
        weights[mode] = shared.weights()[1]
        answer["shares_work"] = shared.config.model_config.multimodal_config.mm_encoder_tp_mode == "data"
    return answer


def _outside(model: Any) -> dict[str, Any]:
    """Parameters that are not the decoder's, by name; of a model whose decoder is not apart, those that say so."""
    try:
        inside = {id(each) for each in model.get_language_model().parameters()}
    except Exception:  # noqa: BLE001 - whatever a class does that has none apart
        inside = set()
    named = dict(model.named_parameters())
    apart = {name: each for name, each in named.items() if id(each) not in inside}
    if inside and apart:
        return apart
    word = "vision" if inside else "encoder"
    return {name: each for name, each in named.items() if word in name and "decoder" not in name}


def _parts(outside: dict[str, Any]) -> dict[str, int]:
    """Parameters by the part of the model that they stand in."""
    parts: dict[str, int] = {}
    for name, each in outside.items():
        part = _part(name)
        parts[part] = parts.get(part, 0) + each.numel()
    return parts


def _part(name: str) -> str:
    """The first module on the way to a parameter that is more than a shell around all."""
    path = name.split(".")
    depth = 2 if path[0] in ("model", "thinker", "encoder", "vlm", "visual_model") and len(path) > 2 else 1
    return ".".join(path[:depth])


def _lists(model: Any, outside: dict[str, Any]) -> Iterator[tuple[str, dict[str, int]]]:
    """The outermost lists of blocks: how many they are, their parameters, and those of them that are matrices'."""
    import torch

    told: list[str] = []
    for path, module in model.named_modules():
        if not isinstance(module, torch.nn.ModuleList | torch.nn.Sequential) or any(map(path.startswith, told)):
            continue
        mine = [each for name, each in outside.items() if name.startswith(f"{path}.")]
        if len(module) < 2 or not mine:
            continue
        told.append(f"{path}.")
        matrices = sum(each.numel() for each in mine if each.dim() >= 2)
        yield path, {"blocks": len(module), "parameters": sum(each.numel() for each in mine), "matrices": matrices}


if __name__ == "__main__":
    sys.exit(main())
