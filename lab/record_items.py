"""Records how many pictures, videos and sounds vLLM's classes allow a prompt, alone and with ``--limit-mm-per-prompt``.

The processing class of every architecture that may see or hear is asked beside its configuration; no model is built:

    PYTHONPATH=src:lab nice python lab/record_items.py [ARCHITECTURE ...]

Its last line says how often ``tokenyard`` allows as many, and takes or refuses the same prompts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import multiprocessing
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from planner.items import COUNTS, LINES, prompts
from tokenyard.models.gpus import GPUS
from tokenyard.models.recorded import recorded
from tokenyard.vllm.describing.pretend_gpu import (
    pretend_flashinfer,
    pretend_gpu,
    pretend_tokenizer,
    pretend_torchvision,
)

MODELS = Path(__file__).resolve().parent.parent / "tests" / "unit" / "models"
OUT = MODELS / "items.json.gz"
TABLE = MODELS.parents[2] / "src" / "tokenyard" / "models" / "recorded" / "items.json"
KINDS = ("multimodal", "pooling")
"""Architectures for which vLLM has a class of its own: transformers' say what their processor takes."""
SECONDS = 60
_FOR_VIDEOS = ("<|video_pad|>", "<|reserved_200000|>")
"""Words that the tokenizers of InternVL's decoders have."""


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
    entries = {each["architecture"]: each for each in registry["architectures"] if each["kind"] in KINDS}
    known: dict[str, Any] = json.loads(gzip.decompress(OUT.read_bytes()))["architectures"] if OUT.exists() else {}
    for name in parser.parse_args().names or sorted(entries):
        case = next((each for each in entries[name]["cases"] if each["variant"] == "default"), None)
        answer = {"error": "it was not built"} if case is None else _in_a_process(name, case["config"], entries[name])
        known.pop(name, None)
        if answer:
            known[name] = answer
            print(name, answer.get("error") or answer["supported"], flush=True)
    answers = {"versions": versions(), "architectures": known}
    OUT.write_bytes(gzip.compress(json.dumps(answers, sort_keys=True).encode(), mtime=0))
    table = {name: each["supported"] for name, each in sorted(known.items()) if "supported" in each}
    lines = [f" {json.dumps(name)}: {json.dumps(each)}" for name, each in table.items()]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    recorded.cache_clear()
    print(f"{len(known)} architectures in {OUT}, {OUT.stat().st_size:,} bytes")
    same = [each.theirs == each.ours for each in prompts(known)]
    print(f"{sum(same):,} of {len(same):,} prompts of {len(table)} architectures are taken or refused as by vLLM")
    return 0


def _in_a_process(name: str, config: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_ask, args=(name, config, entry["kind"], theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        answer = mine.recv() if mine.poll(SECONDS) else {"error": f"no answer within {SECONDS} s"}
    except EOFError:
        answer = {"error": "the process ended"}
    process.kill()
    process.join()
    return dict(answer)


def _ask(name: str, config: dict[str, Any], kind: str, answers: Any) -> None:
    """What the class allows by itself, and which prompts it takes with each line; runs in the forked process."""
    logging.disable(logging.CRITICAL)
    from planner.draw import config_class
    from planner.published import FILES, OPTIONS

    try:
        config_class(name)  # registers what stands in where no class reads its files
        options = {**OPTIONS.get(name, {}), **({"runner": "pooling"} if kind == "pooling" else {})}
        taken: list[dict[str, list[bool]]] = []
        supported: dict[str, int | None] = {}
        for line in LINES:
            limited = {**options, **({"limit_mm_per_prompt": line} if line else {})}
            with tempfile.TemporaryDirectory() as folder:
                info = _info(config, folder, limited, FILES.get(name) or {})
                if info is None:
                    answers.send({})
                    return
                supported = dict(info.get_supported_mm_limits())
                kinds = sorted({*supported, "image", "video", "audio"})
                taken.append({each: [_takes(info, each, count) for count in COUNTS] for each in kinds})
        answers.send({"supported": supported, "taken": taken})
    except Exception as error:  # noqa: BLE001 - one model that cannot be asked must not hide the others
        answers.send({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]})


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
