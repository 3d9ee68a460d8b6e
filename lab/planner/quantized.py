"""Settings of quantisation as published checkpoints have them (``quantized.json``), put into files of known models.

    python -m planner.quantized FOLDER

writes the files; ``lab/compare_configs.py FOLDER --record tests/unit/models/quantized.json.gz --tp 2`` asks vLLM.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[2] / "src" / "tokenyard" / "models" / "configs"


def main() -> int:
    """Write the files."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    known = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    for model, names in known["models"].items():
        content = json.loads((CONFIGS / f"{model}.json").read_text())
        for name in known["settings"] if names == "all" else names:
            file = folder / f"{model}.{name}.json"
            file.write_text(json.dumps({**content, "quantization_config": known["settings"][name]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
