"""Records which stages of a pipeline hold embedding and output head in vLLM, and their weights, by architecture.

It builds both of two stages of every architecture of ``registry.json.gz`` on the meta device:

    PYTHONPATH=src:lab nice python lab/record_stages.py [ARCHITECTURE ...]
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ask_vllm import (
    MODELS,
    RECORDED,
    answers_in,
    ask_vllm,
    config_of,
    names_given,
    pretend,
    registry_entries,
    write_answers,
)

OUT = MODELS / "stages.json.gz"
_NO_PIPELINE = ("Pipeline parallelism is not supported for this model", "does not support pipeline parallelism")


def main() -> int:
    """Ask about every architecture, and write the answers."""
    entries, known = registry_entries(), answers_in(OUT)
    names = names_given(__doc__, sorted(entries))
    pretend()
    for name in names:
        if (small := config_of(entries[name], "small")) is None:
            continue
        config = _untied(small)
        known[name] = {"config": config, **ask_vllm(stages, 90, config=config)}
        print(name, known[name].get("error", known[name].get("stages")), flush=True)
        write_answers(OUT, known, quiet=True)
    write_answers(OUT, known)
    (RECORDED / "stages.json").write_text(json.dumps(_table(known), indent=1) + "\n")
    return 0


def _table(known: dict[str, Any]) -> dict[str, list[str]]:
    """Fact -> architectures: see ``tokenyard.models.reading.pieces.listed``."""
    stages = {name: answer["stages"] for name, answer in known.items() if "stages" in answer}
    return {
        "embedding on every stage": sorted(name for name, (_, last) in stages.items() if last["embedding"]),
        "head on every stage": sorted(name for name, (first, _) in stages.items() if first["head"]),
        "no pipeline": sorted(
            name for name, answer in known.items() if any(words in answer.get("error", "") for words in _NO_PIPELINE)
        ),
    }


def _untied(config: dict[str, Any]) -> dict[str, Any]:
    """The same with an output head of its own."""
    sections = {name: each for name, each in config.items() if isinstance(each, dict)}
    nested = {
        name: {**each, "tie_word_embeddings": False}
        for name, each in sections.items()
        if name == "text_config" or "tie_word_embeddings" in each
    }
    return {**config, **nested, "tie_word_embeddings": False}


def stages(config: dict[str, Any]) -> dict[str, Any]:
    """Return for both stages whether each has an embedding and an output head of its own, and its weights in bytes."""
    from tokenyard.vllm.describing.stand_in import is_known, stand_in

    if not is_known(config["model_type"]):
        stand_in(config)
    return {"stages": [_stage(config, stage) for stage in (0, 1)]}


def _stage(config: dict[str, Any], stage: int) -> dict[str, Any]:
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
