"""Records which fields of a configuration vLLM's code names, by architecture: one that it does not cannot matter.

Sources are read, not run: the module of an architecture, the modules of other models that it imports, directly or not,
and what vLLM takes every model's shape from. ``vllm`` folders are those of the newest version first:

    PYTHONPATH=src python lab/record_field_names.py .venv-vllm-0.33/lib/python3.11/site-packages [OLDER ...]
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tokenyard.models.reading.read import may_matter

OUT = Path(__file__).resolve().parent.parent / "src" / "tokenyard" / "models" / "recorded" / "field_names.json"
_MODELS = "vllm.model_executor.models"
_REGISTRY = "vllm/model_executor/models/registry.py"
_TABLES = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS")
_ALWAYS = "vllm.transformers_utils.model_arch_config_convertor"
_ASIDE = re.compile(
    r"\.(registry|interfaces(_base)?|utils|vision|config|transformers|\w*(_mtp|_eagle3?|_dflash\d?|_dspark))$"
    r"|\.(amd|cpu|xpu)\b"
)
"""Modules of no architecture, of draft models, of other hardware."""
_HOLDER = re.compile(r"(config|cfg|params|args)$")
_ANY_DECODER = ("init_vllm_registered_model", "AutoModel")
_DECODERS = (
    "llama",
    "qwen2",
    "qwen3",
    "qwen2_moe",
    "qwen3_moe",
    "gemma2",
    "internlm2",
    "deepseek_v2",
    "mixtral",
    "phi3",
)
"""What towers stand before whose code takes any decoder."""


def main(roots: list[str]) -> int:
    """Read all sources and write what they name."""
    known: dict[str, list[str]] = {}
    words: dict[str, list[str]] = {}
    for root in map(Path, roots):
        for name, module in _registered(root):
            if name not in known and not module.endswith(".transformers"):
                modules = [each for each in _closure(root, module) if _own(root, each)]
                known[name] = sorted(modules)
                words |= {each: _own(root, each) for each in modules}
    lines = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(words.items())]
    rows = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(known.items())]
    text = '{\n "modules": {\n' + ",\n".join(lines) + '\n },\n "architectures": {\n' + ",\n".join(rows) + "\n }\n}\n"
    OUT.write_text(text.replace(f"{_MODELS}.", ""))
    print(f"{len(known)} architectures, {len(words)} modules in {OUT}, {OUT.stat().st_size:,} bytes")
    return 0


def _registered(root: Path) -> Iterator[tuple[str, str]]:
    """Names of decoders and the modules of their classes."""
    for node in ast.parse((root / _REGISTRY).read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in _TABLES:
            for name, (module, _) in ast.literal_eval(node.value).items():
                yield name, module if module.startswith("vllm.") else f"{_MODELS}.{module}"


def _closure(root: Path, module: str) -> set[str]:
    seen, left = {_ALWAYS, module}, [module]
    while left:
        names, imported = _of_module(root, left.pop())
        if names & {*_ANY_DECODER}:
            imported |= {f"{_MODELS}.{each}" for each in _DECODERS}
        for each in imported - seen:
            if each.startswith((_MODELS, "vllm.models.")) and not _ASIDE.search(each):
                seen.add(each)
                left.append(each)
    return seen


def _own(root: Path, module: str) -> list[str]:
    return sorted(filter(may_matter, _of_module(root, module)[0]))


@cache
def _of_module(root: Path, module: str) -> tuple[frozenset[str], frozenset[str]]:
    """What a module names that may be a field, and the modules that it may import."""
    path = root.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.is_file():
        return frozenset(), frozenset()
    package = (module if path.is_dir() else module.rpartition(".")[0]).split(".")
    names, imported = set(), set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute) and _HOLDER.search(_last_name(node.value)):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            names.add(node.value)
        elif isinstance(node, ast.Name) and node.id in _ANY_DECODER:
            names.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            imported |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return frozenset(names), frozenset(imported)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
