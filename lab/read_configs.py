"""Reads every config.json under folders, as it is and without a flag, and says which are not read, and why.

    PYTHONPATH=src python lab/read_configs.py FOLDER ...             prints
    PYTHONPATH=src python lab/read_configs.py FOLDER ... --write     writes tests/unit/models/public_configs.json

A file counts if it names its architectures. Public repositories hold many (ai-dynamo/aiconfigurator, sgl-project/ome):
none of their files is kept here, only what each came to.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokenyard.errors import ConfigError
from tokenyard.models.reading.read import read_model_file

OUT = Path(__file__).resolve().parent.parent / "tests" / "unit" / "models" / "public_configs.json"
NO_CONFIGS = ("tokenizer_config", "generation_config", "preprocessor_config", "adapter_config")


def files_under(folder: Path) -> Iterator[Path]:
    """JSON files that name architectures."""
    for file in sorted(folder.rglob("*.json")):
        if any(word in file.name for word in NO_CONFIGS):
            continue
        try:
            content = json.loads(file.read_text())
        except (ValueError, OSError):
            continue
        if isinstance(content, dict) and content.get("architectures") and content.get("model_type"):
            yield file


def read(folder: Path, file: Path) -> dict[str, Any]:
    """What one file comes to, or why it is not read."""
    content = file.read_bytes()
    found: dict[str, Any] = {
        "file": str(file.relative_to(folder)),
        "sha256": sha256(content).hexdigest(),
        "architecture": str(json.loads(content)["architectures"][0]),
    }
    try:
        model = read_model_file(file)
    except ConfigError as error:
        return found | {"why": str(error).removeprefix(f"{file}: ").removeprefix("model = ")}
    return found | {
        "parameters": model.num_parameters,
        "layers": model.num_layers,
        "kv_bytes_per_token": model.kv_bytes_per_token(),
    }


def main() -> int:
    """Read, print, and write with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help=f"write {OUT.name}")
    flags = parser.parse_args()
    found = {}
    for folder in flags.folders:
        rows = [read(folder, file) for file in files_under(folder)]
        found[folder.name.replace("+", "/")] = rows
        wrong = [row for row in rows if "why" in row]
        kinds = len({row["architecture"] for row in rows if "why" not in row})
        print(f"{folder.name}: {len(rows) - len(wrong)} of {len(rows)} files read, of {kinds} architectures")
        for row in wrong:
            print(f"  {row['file']}: {' '.join(row['why'].split())[:160]}")
    if flags.write:
        OUT.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
