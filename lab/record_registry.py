"""Records what vLLM's planner and model classes make of every decoder of its registry: proof of docs/models.md.

Every architecture is built in a process of its own, within a time, with the defaults of its configuration class and
with drawn sizes (``lab/planner``). Run it in an environment with vLLM's sources and torch:

    PYTHONPATH=src:lab nice python lab/record_registry.py [ARCHITECTURE ...] [--kind text] [--work FOLDER]

``--work`` keeps an answer per architecture, and those that are there are not asked for again; all that are in it are
entered into ``tests/unit/models/registry.json.gz``, and which fields no class reads into ``unread.json``. What differs
from the rows of ``src/tokenyard/models/reading/families`` is printed, of the architectures named or of all.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenyard.models.gpus import GPUS
from tokenyard.models.reading.harmless import may_matter
from tokenyard.models.reading.table import ROWS
from tokenyard.vllm.describing.pretend_gpu import (
    pretend_flashinfer,
    pretend_gpu,
    pretend_tokenizer,
    pretend_torchvision,
)

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))
OUT = REPO / "tests" / "unit" / "models" / "registry.json.gz"
UNREAD = REPO / "src" / "tokenyard" / "models" / "recorded" / "unread.json"
AVAILABLE = (4 << 30, (24 << 30) + 12_345, 70 << 30)
TENSOR_PARALLEL = (1, 2, 8)
SECONDS = 240
"""For one architecture."""
APART = ("GPTBigCodeForCausalLM",)
"""Every variant and size in a process of its own: their classes forget how to share out after the first."""


def main() -> int:
    """Ask about every architecture that there is no answer for, and put all answers together."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kind", choices=("text", "multimodal", "transformers", "pooling"), nargs="*")
    parser.add_argument("--work", type=Path, default=Path("build/registry"))
    parser.add_argument("--again", action="store_true", help="ask again where there is an answer")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--unread", type=Path, default=UNREAD)
    flags = parser.parse_args()
    gpu = GPUS["h100"]
    pretend_gpu(gpu.memory_bytes, gpu.compute_capability, f"NVIDIA {gpu.name.upper()}")
    pretend_torchvision()
    pretend_flashinfer()
    pretend_tokenizer()
    from planner.draw import registry
    from tokenyard.vllm.describing.built import MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS, versions

    flags.work.mkdir(parents=True, exist_ok=True)
    for name, kind in registry().items():
        file = flags.work / f"{name}.json"
        wanted = name in flags.names if flags.names else not flags.kind or kind in flags.kind
        if wanted and (flags.again or not file.exists()):
            answer = {"architecture": name, "kind": kind, **_answer(name)}
            file.write_text(json.dumps(answer, sort_keys=True))
            print(name, len(answer["cases"]), answer.get("error", "")[:150], flush=True)
    settings = {"max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS, "max_num_seqs": MAX_NUM_SEQS}
    known, unread = _written(flags.out), json.loads(flags.unread.read_text()) if flags.unread.exists() else {}
    for file in flags.work.glob("*.json"):
        answer = json.loads(file.read_text())
        unread[answer["architecture"]] = [*filter(may_matter, answer.pop("unread", ()))]
        known[answer["architecture"]] = answer
    answers = [known[name] for name in sorted(known)]
    lines = [f" {json.dumps(name)}: {json.dumps(unread[name])}" for name in sorted(unread) if unread[name]]
    flags.unread.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    recorded = {"versions": versions(), "gpu": gpu.name, "settings": settings, "architectures": answers}
    flags.out.write_bytes(gzip.compress(json.dumps(recorded, sort_keys=True).encode(), mtime=0))
    print(f"{len(answers)} architectures in {flags.out}, {flags.out.stat().st_size:,} bytes")
    asked = [each for each in answers if not flags.names or each["architecture"] in flags.names]
    return int(sum(_differs(each, recorded) for each in asked) > 0)


def _differs(entry: dict[str, Any], recorded: dict[str, Any]) -> bool:
    """Print what the row of an architecture comes to otherwise than vLLM; one without a row does not differ."""
    from tests.support.planner_answers import differences

    name = entry["architecture"]
    found = [*differences(entry, recorded)] if name in ROWS else []
    for line in found:
        print(f"{name}: {line}")
    return bool(found)


def _written(file: Path) -> dict[str, Any]:
    """The answers that are there, by architecture."""
    if not file.exists():
        return {}
    return {each["architecture"]: each for each in json.loads(gzip.decompress(file.read_bytes()))["architectures"]}


def _answer(name: str) -> dict[str, Any]:
    from planner.draw import VARIANTS

    if name not in APART:
        return _in_a_process(name, VARIANTS, TENSOR_PARALLEL)
    whole: dict[str, Any] = {"cases": []}
    for variant in VARIANTS:
        each = [_in_a_process(name, (variant,), (size,)) for size in TENSOR_PARALLEL]
        cases = [case for answer in each for case in answer.pop("cases")]
        if cases:
            sizes = [said for case in cases for said in case["tensor_parallel"]]
            whole["cases"].append({**cases[0], "tensor_parallel": sizes})
        whole |= each[0]
    return whole


def _in_a_process(name: str, variants: tuple[str, ...], sizes: tuple[int, ...]) -> dict[str, Any]:
    """The answer of a forked process: all that it found until it ended, crashed or took too long."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_ask, args=(name, variants, sizes, theirs), daemon=True)
    process.start()
    theirs.close()
    answer: dict[str, Any] = {"cases": []}
    try:
        while mine.poll(SECONDS):
            said = mine.recv()
            if isinstance(said, list):
                answer["unread"] = said
            elif isinstance(said, str):
                answer["error"] = said
            else:
                answer["cases"].append(said)
        answer.setdefault("error", f"no answer within {SECONDS} s")
    except EOFError:
        pass
    process.kill()
    process.join()
    if not answer["cases"]:
        answer.setdefault("error", f"the process ended with {process.exitcode}")
    return answer


def _ask(name: str, variants: tuple[str, ...], sizes: tuple[int, ...], answers: Any) -> None:
    """Build every variant for every size of the tensor-parallel group; runs in the forked process."""
    import logging

    logging.disable(logging.CRITICAL)
    from planner.draw import config_class, drawn, registry
    from planner.published import FILES, OPTIONS
    from planner.watch import Watch

    try:
        made_by = config_class(name)
    except Exception as error:  # noqa: BLE001 - whatever a foreign class does
        made_by = None
        answers.send(_line(error))
    if made_by is None:
        answers.send("neither transformers nor vLLM has a configuration class for it")
        return
    options = OPTIONS.get(name, {})
    if registry()[name] == "pooling":
        options = {"runner": "pooling", **options}
    watch = Watch()
    last: str | None = None
    for variant in variants:
        for config in _guarded(drawn(name, made_by, variant), answers):
            said = [_case(config, size, watch, options, FILES.get(name)) for size in sizes]
            built = [each for each in said if "error" not in each]
            if built:
                answers.send({"variant": variant, "config": config, "tensor_parallel": said})
                watch.saw(config)
                break
            last = str(said[0]["error"])
    if last is not None:
        answers.send(last)
    answers.send(watch.unread())


def _guarded(configs: Iterator[dict[str, Any]], answers: Any) -> Iterator[dict[str, Any]]:
    try:
        yield from configs
    except Exception as error:  # noqa: BLE001 - whatever a foreign class does
        answers.send(_line(error))


def _case(
    config: dict[str, Any], size: int, watch: Any, options: dict[str, Any], files: dict[str, Any] | None
) -> dict[str, Any]:
    from planner.ask import recorded
    from tokenyard.vllm.describing.built import BuiltModel

    try:
        built = BuiltModel(config, size, options, files=files)
        watch.built(built.model)
        return recorded(built, size, AVAILABLE)
    except Exception as error:  # noqa: BLE001 - one model that cannot be built must not hide the others
        return {"tensor_parallel_size": size, "error": _not_imported(config["architectures"][0], error) or _line(error)}


def _not_imported(name: str, error: Exception) -> str:
    """What vLLM's module for the architecture cannot import, where that is why it was not looked at."""
    if "failed to be inspected" not in str(error):
        return ""
    from vllm.model_executor.models import registry

    try:
        registry.ModelRegistry.models[name].load_model_cls()
    except ImportError as missing:
        return _line(missing)
    except Exception as wrong:  # noqa: BLE001 - whatever a module does when it is imported
        return _line(wrong)
    return ""


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


if __name__ == "__main__":
    sys.exit(main())
