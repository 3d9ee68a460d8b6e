"""Records what vLLM builds of encoders: parameters of every part, of every list of blocks, and under both TP modes.

Every architecture that sees or hears is built on the meta device with its recorded sizes, by itself and as the first
of two ranks that share the encoder's weights, or its work (``--mm-encoder-tp-mode data``):

    PYTHONPATH=src:lab nice python lab/record_encoders.py [ARCHITECTURE ...]

Its answers are in ``tests/unit/models/encoders.json.gz``; which classes share the work is in ``encoder_modes.json``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import multiprocessing
import sys
from collections.abc import Iterator
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
OUT = MODELS / "encoders.json.gz"
TABLE = MODELS.parents[2] / "src" / "tokenyard" / "models" / "recorded" / "encoder_modes.json"
KINDS = ("multimodal", "pooling")
"""Architectures that run transformers' own code."""
VARIANTS = ("default", "small")
SECONDS = 300


def main() -> int:
    """Ask about every architecture, in a process of its own, and write the answers and the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    gpu = GPUS["h100"]
    pretend_gpu(gpu.memory_bytes, gpu.compute_capability, f"NVIDIA {gpu.name.upper()}")
    pretend_torchvision()
    pretend_flashinfer()
    pretend_tokenizer()
    from tokenyard.vllm.describing.built import versions

    registry = json.loads(gzip.decompress((MODELS / "registry.json.gz").read_bytes()))
    entries = {each["architecture"]: each for each in registry["architectures"] if _may_see(each)}
    known: dict[str, Any] = json.loads(gzip.decompress(OUT.read_bytes()))["architectures"] if OUT.exists() else {}
    for name in parser.parse_args().names or sorted(set(entries) - set(known)):
        configs = [each["config"] for each in entries[name]["cases"] if each["variant"] in VARIANTS]
        answer = _answer(name, entries[name]["kind"], configs)
        if answer:
            known[name] = answer
            print(name, answer.get("error") or [case["parts"] for case in answer["cases"][:1]], flush=True)
            recorded = {"versions": versions(), "architectures": known}
            OUT.write_bytes(gzip.compress(json.dumps(recorded, sort_keys=True).encode(), mtime=0))
    shares = sorted(name for name, each in known.items() if each.get("shares_work"))
    TABLE.write_text(json.dumps(shares, indent=1) + "\n")
    print(f"{len(known)} architectures in {OUT}, {OUT.stat().st_size:,} bytes; {len(shares)} may share the work")
    return 0


def _may_see(entry: dict[str, Any]) -> bool:
    """Whether it may see or hear: some that the registry has among text do."""
    return entry["kind"] in KINDS or (
        entry["kind"] == "text" and any("vision_config" in case["config"] for case in entry["cases"])
    )


def _answer(name: str, kind: str, configs: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer for each configuration, in a process each: what was divided by images leaves traces. None of text."""
    whole: dict[str, Any] = {}
    for config in configs:
        said = _in_a_process(name, kind, config)
        if "case" in said:
            whole.setdefault("cases", []).append(said.pop("case"))
        whole |= said
    return whole


def _in_a_process(name: str, kind: str, config: dict[str, Any]) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_ask, args=(name, kind, config, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        answer = mine.recv() if mine.poll(SECONDS) else {"error": f"no answer within {SECONDS} s"}
    except EOFError:
        answer = {"error": "the process ended"}
    process.kill()
    process.join()
    return dict(answer)


def _ask(name: str, kind: str, config: dict[str, Any], answers: Any) -> None:
    """Parts and weights for both modes; runs in the forked process."""
    logging.disable(logging.CRITICAL)
    from planner.draw import config_class
    from planner.published import FILES, OPTIONS
    from tokenyard.vllm.describing.built import BuiltModel

    options = {**OPTIONS.get(name, {}), **({"runner": "pooling"} if kind == "pooling" else {})}
    try:
        config_class(name)  # registers what stands in where no class reads its files
        built = BuiltModel(config, 1, options, files=FILES.get(name))
        if not built.config.model_config.is_multimodal_model:
            answers.send({})
            return
        outside = _outside(built.model)
        case = {"config": config, "parts": _parts(outside), "lists": dict(_lists(built.model, outside))}
        answer: dict[str, Any] = {"case": {**case, "weight_bytes": {}}}
        for mode in ("weights", "data"):
            try:
                shared = BuiltModel(config, 2, {**options, "mm_encoder_tp_mode": mode}, files=FILES.get(name))
            except Exception as error:  # noqa: BLE001 - what is not shared out is not, whatever the mode
                answer["case"]["weight_bytes"][mode] = _line(error)[:200]
                continue
            answer["case"]["weight_bytes"][mode] = shared.weights()[1]
            answer["shares_work"] = shared.config.model_config.multimodal_config.mm_encoder_tp_mode == "data"
        answers.send(answer)
    except Exception as error:  # noqa: BLE001 - one model that cannot be built must not hide the others
        answers.send({"error": _line(error)[:300]})


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


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
