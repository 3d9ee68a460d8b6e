"""Records which stages of a pipeline hold embedding and output head in vLLM, and their weights, by architecture.

It builds both of two stages of every architecture of ``registry.json.gz`` on the meta device:

    PYTHONPATH=src:lab nice python lab/record_stages.py [ARCHITECTURE ...]
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import multiprocessing
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

MODELS = Path(__file__).resolve().parent.parent / "tests" / "unit" / "models"
OUT = MODELS / "stages.json.gz"
TABLE = MODELS.parents[2] / "src" / "tokenyard" / "models" / "recorded" / "stages.json"
SECONDS = 90
_NO_PIPELINE = ("Pipeline parallelism is not supported for this model", "does not support pipeline parallelism")


def main() -> int:
    """Ask about every architecture, in a process of its own, and write the answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    gpu = GPUS["h100"]
    pretend_gpu(gpu.memory_bytes, gpu.compute_capability, f"NVIDIA {gpu.name.upper()}")
    pretend_torchvision()
    pretend_flashinfer()
    pretend_tokenizer()
    from tokenyard.vllm.describing.built import versions

    registry = json.loads(gzip.decompress((MODELS / "registry.json.gz").read_bytes()))
    entries = {entry["architecture"]: entry["cases"] for entry in registry["architectures"]}
    known: dict[str, Any] = json.loads(gzip.decompress(OUT.read_bytes()))["architectures"] if OUT.exists() else {}
    for name in parser.parse_args().names or sorted(entries):
        case = next((each for each in entries[name] if each["variant"] == "small"), None)
        if case is None:
            continue
        config = _untied(case["config"])
        known[name] = {"config": config, **_in_a_process(config)}
        print(name, known[name].get("error", known[name].get("stages")), flush=True)
        recorded = {"versions": versions(), "architectures": known}
        OUT.write_bytes(gzip.compress(json.dumps(recorded, sort_keys=True).encode(), mtime=0))
    TABLE.write_text(json.dumps(_table(known), indent=1) + "\n")
    print(f"{len(known)} architectures in {OUT}, {OUT.stat().st_size:,} bytes")
    return 0


def _table(known: dict[str, Any]) -> dict[str, list[str]]:
    """Fact -> architectures: see ``tokenyard.models.reading.parts.listed``."""
    stages = {name: answer["stages"] for name, answer in known.items() if "stages" in answer}
    return {
        "embedding on every stage": sorted(name for name, (_, last) in stages.items() if last["embedding"]),
        "head on every stage": sorted(name for name, (first, _) in stages.items() if first["head"]),
        "no pipeline": sorted(name for name, answer in known.items() if _has_none(answer.get("error", ""))),
    }


def _has_none(error: str) -> bool:
    return any(words in error for words in _NO_PIPELINE)


def _untied(config: dict[str, Any]) -> dict[str, Any]:
    """The same with an output head of its own."""
    sections = {name: each for name, each in config.items() if isinstance(each, dict)}
    nested = {
        name: {**each, "tie_word_embeddings": False}
        for name, each in sections.items()
        if name == "text_config" or "tie_word_embeddings" in each
    }
    return {**config, **nested, "tie_word_embeddings": False}


def _in_a_process(config: dict[str, Any]) -> dict[str, Any]:
    """The answer of a forked process, or why there is none."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_ask, args=(config, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        answer: dict[str, Any] = mine.recv() if mine.poll(SECONDS) else {"error": f"no answer within {SECONDS} s"}
    except EOFError:
        answer = {"error": "the process ended"}
    process.kill()
    process.join()
    return answer


def _ask(config: dict[str, Any], answers: Any) -> None:
    logging.disable(logging.CRITICAL)
    from tokenyard.vllm.describing.stand_in import is_known, stand_in

    try:
        if not is_known(config["model_type"]):
            stand_in(config)
        answers.send({"stages": [_stage(config, stage) for stage in (0, 1)]})
    except Exception as error:  # noqa: BLE001 - one model that cannot be built must not hide the others
        answers.send({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]})


def _stage(config: dict[str, Any], stage: int) -> dict[str, Any]:
    """Whether it holds an embedding and an output head of its own, and its weights in bytes."""
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

    from planner.published import OPTIONS
    from tokenyard.vllm.describing.built import BuiltModel

    options = {"pipeline_parallel_size": 2, **OPTIONS.get(config["architectures"][0], {})}
    built = BuiltModel(config, 1, options, stage=stage)
    tables = [each for each in built.model.modules() if isinstance(each, VocabParallelEmbedding)]
    weights = {
        isinstance(each, ParallelLMHead) and each.weight is not None: id(each.weight)
        for each in tables
        if getattr(each, "weight", None) is not None
    }
    return {
        "embedding": False in weights,
        "head": True in weights and weights[True] != weights.get(False),
        "weight_bytes": built.weights()[1],
    }


if __name__ == "__main__":
    sys.exit(main())
