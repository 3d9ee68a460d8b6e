"""Records how many pictures, videos and sounds vLLM's classes allow a prompt, alone and with ``--limit-mm-per-prompt``.

The processing class of every architecture that may see or hear is asked beside its configuration; no model is built:

    PYTHONPATH=src:lab nice python lab/record_items.py [ARCHITECTURE ...]

Its last line says how often ``tokenyard`` allows as many, and takes or refuses the same prompts.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
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
    write_rows,
)
from planner.items import COUNTS, LINES, prompts
from tokenyard.models.recorded import recorded

OUT = MODELS / "items.json.gz"
KINDS = ("multimodal", "pooling")
"""Architectures for which vLLM has a class of its own: transformers' say what their processor takes."""
_FOR_VIDEOS = ("<|video_pad|>", "<|reserved_200000|>")
"""Words that the tokenizers of InternVL's decoders have."""


def main() -> int:
    """Ask about every architecture, and write the answers and the table."""
    entries, known = registry_entries(*KINDS), answers_in(OUT)
    names = names_given(__doc__, sorted(entries))
    pretend()
    for name in names:
        config, kind = config_of(entries[name]), entries[name]["kind"]
        answer = {"error": "it was not built"} if config is None else ask_vllm(items, 60, config=config, kind=kind)
        known.pop(name, None)
        if answer:
            known[name] = answer
            print(name, answer.get("error") or answer["supported"], flush=True)
    write_answers(OUT, known)
    table = {name: each["supported"] for name, each in sorted(known.items()) if "supported" in each}
    write_rows(RECORDED / "items.json", table)
    recorded.cache_clear()
    same = [each.theirs == each.ours for each in prompts(known)]
    print(f"{sum(same):,} of {len(same):,} prompts of {len(table)} architectures are taken or refused as by vLLM")
    return 0


def items(config: dict[str, Any], kind: str) -> dict[str, Any]:
    """What the class allows by itself, and which prompts it takes with each line; nothing of a model of text."""
    from planner.draw import config_class
    from planner.published import FILES, OPTIONS

    name = config["architectures"][0]
    config_class(name)  # registers what stands in where no class reads its files
    options = {**OPTIONS.get(name, {}), **({"runner": "pooling"} if kind == "pooling" else {})}
    taken: list[dict[str, list[bool]]] = []
    supported: dict[str, int | None] = {}
    for line in LINES:
        limited = {**options, **({"limit_mm_per_prompt": line} if line else {})}
        with tempfile.TemporaryDirectory() as folder:
            info = _info(config, folder, limited, FILES.get(name) or {})
            if info is None:
                return {}
            supported = dict(info.get_supported_mm_limits())
            kinds = sorted({*supported, "image", "video", "audio"})
            taken.append({each: [_takes(info, each, count) for count in COUNTS] for each in kinds})
    return {"supported": supported, "taken": taken}


def _info(config: dict[str, Any], folder: str, options: dict[str, Any], files: dict[str, Any]) -> Any:
    """The processing class, beside the configuration as vLLM reads it; None where the model is text alone."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.multimodal import MULTIMODAL_REGISTRY

    from tokenyard.vllm.describing.stand_in import with_factors

    for path, content in {"config.json": with_factors(config), **files}.items():
        Path(folder, path).parent.mkdir(exist_ok=True)
        Path(folder, path).write_text(json.dumps(content))
    model = EngineArgs(
        **{"model": folder, "skip_tokenizer_init": True, "load_format": "dummy", **options}
    ).create_model_config()
    if not model.is_multimodal_model:
        return None
    info = MULTIMODAL_REGISTRY._create_processing_info(model, tokenizer=None)  # noqa: SLF001
    with suppress(ValueError):  # classes that take Mistral's tokenizers alone
        info.get_tokenizer().get_vocab.return_value = dict.fromkeys(_FOR_VIDEOS, 1)
    return info


def _takes(info: Any, kind: str, count: int) -> bool:
    from vllm.exceptions import VLLMValidationError

    try:
        info.validate_num_items(kind, count)
    except (ValueError, VLLMValidationError):  # Gemma 4 says in words of its own that it does not hear
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
