"""What published files hold beyond the defaults of a configuration class, where vLLM cannot build a model without it.

Some classes leave out fields that vLLM reads and every published file has; some architectures have no class at all in
``transformers`` or vLLM: theirs are read with another architecture's class, or with one of these fields alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["BORROWED", "FIELDS", "FILES", "OPTIONS", "SIZES", "TABLES", "WITHOUT_CLASS"]

_PUBLISHED = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

BORROWED: dict[str, str] = _PUBLISHED["borrowed"]
"""Architecture -> model_type whose class reads its files."""
FIELDS: dict[str, dict[str, Any]] = _PUBLISHED["fields"]
"""Architecture -> what its class leaves out."""
FILES: dict[str, dict[str, Any]] = _PUBLISHED["files"]
"""Architecture -> files beside its config.json, by name."""
OPTIONS: dict[str, dict[str, Any]] = _PUBLISHED["options"]
"""Architecture -> the options without which vLLM does not build it."""
WITHOUT_CLASS: dict[str, dict[str, Any]] = _PUBLISHED["without_class"]
"""Architecture -> the fields of its files, where no class reads them."""
SIZES: dict[str, dict[str, dict[str, Any]]] = _PUBLISHED["sizes"]
"""Architecture -> variant -> fields, where other sizes cannot be drawn."""
TABLES = tuple(_PUBLISHED["pooling"])
"""Tables of vLLM's registry that only pool, by what is made of a prompt."""
