"""Records what vLLM loads of multimodal models under ``--limit-mm-per-prompt``: weights, and which inputs they know.

Every model is built on the meta device with sizes as small as ``registry.json.gz`` has them, once without limits and
once for each set of inputs that a line may forbid:

    PYTHONPATH=src:lab nice python lab/record_limits.py [ARCHITECTURE ...]
"""

from __future__ import annotations

import sys
from typing import Any

from ask_vllm import (
    MODELS,
    RECORDED,
    answers_in,
    ask_vllm,
    built_model,
    config_of,
    line_of,
    names_given,
    pretend,
    registry_entries,
    write_answers,
    write_rows,
)

OUT = MODELS / "limits.json.gz"
FORBIDDEN = ("", "image", "image video", "audio", "image video audio", "vision_chunk")
"""Inputs that a line allows none of."""


def main() -> int:
    """Ask about every multimodal architecture, and write the answers."""
    entries = {name: each for name, each in registry_entries().items() if each["kind"] != "pooling"}
    known = answers_in(OUT)
    names = names_given(__doc__, sorted(entries))
    pretend()
    for name in names:
        config = config_of(entries[name], "small")
        answer = {} if config is None else ask_vllm(loaded, 90, config=config)
        if answer:
            known[name] = {"config": config, **answer}
            print(name, answer, flush=True)
            write_answers(OUT, known, quiet=True)
    write_answers(OUT, known)
    inputs = {name: _read_by_towers(each) for name, each in sorted(known.items()) if "inputs" in each}
    write_rows(RECORDED / "inputs.json", inputs)
    return 0


def _read_by_towers(answer: dict[str, Any]) -> dict[str, list[str]]:
    """By the kind of a tower, what has to be forbidden for it to be left out; nothing where it is always loaded."""
    weights = answer["weight_bytes"]
    whole = weights[""]
    sound = whole - weights["audio"]
    vision = next(
        (
            forbidden.split()
            for forbidden in ("image", "vision_chunk", "image video", "image video audio")
            if weights.get(forbidden, whole) < whole - (sound if "audio" in forbidden else 0)
        ),
        [],
    )
    return {"audio": ["audio"] if sound else [], "vision": vision}


def loaded(config: dict[str, Any]) -> dict[str, Any]:
    """Weights for every set of forbidden inputs; nothing of a model of text."""
    from vllm.multimodal import MULTIMODAL_REGISTRY

    weights: dict[str, int] = {}
    inputs: list[str] = []
    try:
        for forbidden in FORBIDDEN:
            limits = dict.fromkeys(forbidden.split(), 0)
            options: dict[str, Any] = {"limit_mm_per_prompt": limits} if limits else {}
            built = built_model(config, **options)
            weights[forbidden] = built.weights()[1]
            if not built.config.model_config.is_multimodal_model:
                return {}
            if not forbidden:
                info = MULTIMODAL_REGISTRY._create_processing_info(built.config.model_config, tokenizer=None)  # noqa: SLF001
                inputs = sorted(info.get_supported_mm_limits())
    except Exception as error:  # noqa: BLE001 - what was heard until then is kept
        return {"error": line_of(error), "weight_bytes": weights}
    return {"inputs": inputs, "weight_bytes": weights}


if __name__ == "__main__":
    sys.exit(main())
