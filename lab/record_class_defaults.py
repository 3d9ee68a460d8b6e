"""Records what configuration classes fill in where a file leaves a field or a section out, for every model_type of the
recordings.

Run it in an environment with vLLM's ``transformers``:

    PYTHONPATH=src python lab/record_class_defaults.py
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenyard.models.reading.read import harmless_by_rule

REPO = Path(__file__).resolve().parent.parent
RECORDED = REPO / "tests" / "unit" / "models" / "registry.json.gz"
NAMED = REPO / "src" / "tokenyard" / "models" / "configs"
OUT = REPO / "src" / "tokenyard" / "models" / "recorded" / "class_defaults.json"
SECTIONS = OUT.with_name("class_sections.json")
_TIMES = {
    "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 3, "intermediate_size": 2, "n_embd": 4,
    "n_head": 2, "n_layer": 3,
}  # fmt: skip
"""Sizes are changed by different factors, so that what follows from a ratio of two of them changes too."""
_LIBRARY = (
    "model_type",
    "use_cache",
    "return_dict",
    "transformers_version",
    "hidden_act",
    "hidden_activation",
    "is_decoder",
)


def main() -> int:
    """Write the file."""
    configs = [json.loads(file.read_text()) for file in NAMED.glob("*.json")]
    for entry in json.loads(gzip.decompress(RECORDED.read_bytes()))["architectures"]:
        configs += [case["config"] for case in entry["cases"][:1]]
    types = sorted(set(_types(configs)))
    sections = {name: found for name in types if (found := _sections(name))}
    types = sorted({*types, *(kind for found in sections.values() for kind, _ in found.values())})
    _write(OUT, {name: fields for name in types if (fields := _fields(name))})
    _write(SECTIONS, sections)
    return 0


def _write(file: Path, found: dict[str, Any]) -> None:
    lines = [f" {json.dumps(name)}: {json.dumps(fields)}" for name, fields in found.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(found)} kinds of model in {file}, {file.stat().st_size:,} bytes")


def _sections(name: str) -> dict[str, list[Any]]:
    """Sections that the class of this model_type makes where a file has none: their kind, and whether a file may say
    another.
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    if name in _vllms_own():
        return {}
    try:
        made_by = CONFIG_MAPPING[name]
        made = {section: getattr(made_by(), section, None) for section in made_by.sub_configs}
    except Exception:  # noqa: BLE001 - whatever a foreign class does
        return {}
    return {
        section: [config.model_type, made_by.sub_configs[section] is AutoConfig]
        for section, config in sorted(made.items())
        if config is not None and config.model_type
    }


def _types(configs: list[Any]) -> Iterator[str]:
    """Every model_type of these files and of the sections in them."""
    for config in configs:
        if isinstance(config, dict):
            if isinstance(config.get("model_type"), str):
                yield config["model_type"]
            yield from _types(list(config.values()))


def _fields(name: str) -> dict[str, Any]:
    """What the class of this model_type fills in, whatever its sizes: numbers and texts that may change memory or time.

    A field that changes with others is left out: the rows say how it follows from them.
    """
    from transformers import CONFIG_MAPPING

    if name in _vllms_own():
        return {}
    try:
        made_by = CONFIG_MAPPING[name]
        content = made_by().to_dict()
        sizes = {each: times * value for each, times in _TIMES.items() if isinstance(value := content.get(each), int)}
        other = {**made_by(**sizes).to_dict(), **{each: content[each] for each in sizes}}
    except Exception:  # noqa: BLE001 - whatever a foreign class does
        return {}
    return {
        field: value for field, value in sorted(content.items()) if other.get(field) == value and _is_kept(field, value)
    }


@cache
def _vllms_own() -> frozenset[str]:
    """Kinds of model that vLLM has a class of its own for: its defaults may be others."""
    found = find_spec("vllm")
    assert found is not None
    assert found.origin is not None
    text = Path(found.origin).with_name("transformers_utils").joinpath("config.py").read_text()
    return frozenset(re.findall(r'^    (\w+)="\w+Config"', text, re.MULTILINE))


def _is_kept(field: str, value: Any) -> bool:
    return isinstance(value, int | float | str) and field not in _LIBRARY and not harmless_by_rule(field)


if __name__ == "__main__":
    sys.exit(main())
