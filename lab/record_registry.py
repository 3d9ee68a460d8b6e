"""Records what vLLM's planner and model classes make of every decoder of its registry: proof of the table of models.

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
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ask_vllm import AVAILABLE, MODELS, RECORDED, ROOT, around, ask_vllm, line_of, planned, pretend, write_rows
from tokenyard.models.reading.read import may_matter
from tokenyard.models.reading.table import ROWS

sys.path.insert(0, str(ROOT))
OUT = MODELS / "registry.json.gz"
UNREAD = RECORDED / "unread.json"
TENSOR_PARALLEL = (1, 2, 8)
SECONDS = 240
"""For one variant of an architecture."""
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
    pretend()
    from planner.draw import registry

    flags.work.mkdir(parents=True, exist_ok=True)
    for name, kind in registry().items():
        file = flags.work / f"{name}.json"
        wanted = name in flags.names if flags.names else not flags.kind or kind in flags.kind
        if wanted and (flags.again or not file.exists()):
            answer = {"architecture": name, "kind": kind, **_answer(name, kind)}
            file.write_text(json.dumps(answer, sort_keys=True))
            print(name, len(answer["cases"]), answer.get("error", "")[:150], flush=True)
    known, unread = _written(flags.out), json.loads(flags.unread.read_text()) if flags.unread.exists() else {}
    for file in flags.work.glob("*.json"):
        answer = json.loads(file.read_text())
        unread[answer["architecture"]] = [*filter(may_matter, answer.pop("unread", ()))]
        known[answer["architecture"]] = answer
    answers = [known[name] for name in sorted(known)]
    write_rows(flags.unread, {name: unread[name] for name in sorted(unread) if unread[name]})
    recorded = {**around(), "architectures": answers}
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


def _answer(name: str, kind: str) -> dict[str, Any]:
    """One answer of all variants and sizes; where there is none, or its class bears no more than one, of each alone."""
    from planner.draw import VARIANTS

    question = {"name": name, "kind": kind}
    if name not in APART:
        said = ask_vllm(built, SECONDS * len(VARIANTS), **question, variants=VARIANTS, sizes=TENSOR_PARALLEL)
        if "cases" in said:
            return dict(said)
    whole: dict[str, Any] = {"cases": []}
    for variant in VARIANTS:
        each = [ask_vllm(built, SECONDS, **question, variants=(variant,), sizes=(size,)) for size in TENSOR_PARALLEL]
        cases = [case for answer in each for case in answer.pop("cases", ())]
        if cases:
            sizes = [said for case in cases for said in case["tensor_parallel"]]
            whole["cases"].append({**cases[0], "tensor_parallel": sizes})
        whole |= each[0]
    return whole


def built(name: str, kind: str, variants: Sequence[str], sizes: Sequence[int]) -> dict[str, Any]:
    """Every variant for every size of the tensor-parallel group, and the fields that no class reads."""
    from planner.draw import config_class, drawn
    from planner.published import FILES, OPTIONS
    from planner.watch import Watch

    try:
        made_by = config_class(name)
    except Exception as error:  # noqa: BLE001 - whatever a foreign class does
        return {"cases": [], "error": line_of(error)}
    if made_by is None:
        return {"cases": [], "error": "neither transformers nor vLLM has a configuration class for it"}
    options = {**({"runner": "pooling"} if kind == "pooling" else {}), **OPTIONS.get(name, {})}
    watch, answer, last = Watch(), dict[str, Any](cases=[]), dict[str, str]()
    for variant in variants:
        for config in _guarded(drawn(name, made_by, variant), answer):
            said = [_case(config, size, watch, options, FILES.get(name)) for size in sizes]
            if any("error" not in each for each in said):
                answer["cases"].append({"variant": variant, "config": config, "tensor_parallel": said})
                watch.saw(config)
                break
            last = {"error": str(said[0]["error"])}
    return {**answer, **last, "unread": watch.unread()}


def _guarded(configs: Iterator[dict[str, Any]], answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        yield from configs
    except Exception as error:  # noqa: BLE001 - whatever a foreign class does
        answer["error"] = line_of(error)


def _case(
    config: dict[str, Any], size: int, watch: Any, options: dict[str, Any], files: dict[str, Any] | None
) -> dict[str, Any]:
    from tokenyard.vllm.describing.built import BuiltModel

    try:
        made = BuiltModel(config, size, options, files=files)
        watch.built(made.model)
        return planned(made, size, AVAILABLE)
    except Exception as error:  # noqa: BLE001 - one model that cannot be built must not hide the others
        why = _not_imported(config["architectures"][0], error) or line_of(error)
        return {"tensor_parallel_size": size, "error": why}


def _not_imported(name: str, error: Exception) -> str:
    """What vLLM's module for the architecture cannot import, where that is why it was not looked at."""
    if "failed to be inspected" not in str(error):
        return ""
    from vllm.model_executor.models import registry

    try:
        registry.ModelRegistry.models[name].load_model_cls()
    except ImportError as missing:
        return line_of(missing)
    except Exception as wrong:  # noqa: BLE001 - whatever a module does when it is imported
        return line_of(wrong)
    return ""


if __name__ == "__main__":
    sys.exit(main())
