"""What the configuration classes of ``transformers`` fill in where a ``config.json`` leaves it out, as recorded."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _recorded() -> dict[str, dict[str, Any]]:
    content: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("class_defaults.json").read_text())
    return content


def class_defaults(model_type: object) -> dict[str, Any]:
    """What a file or a section of this ``model_type`` leaves out, as its configuration class fills it in.

    ``scripts/record_class_defaults.py`` records it from the classes.
    """
    return _recorded().get(model_type, {}) if isinstance(model_type, str) else {}


@cache
def _sections() -> dict[str, dict[str, tuple[str, bool]]]:
    content: dict[str, dict[str, tuple[str, bool]]] = json.loads(
        Path(__file__).with_name("class_sections.json").read_text()
    )
    return content


def section_type(model_type: object, section: str, said: object) -> str:
    """The kind of a section, as the class of the file around it makes it, whatever it ``said`` of itself; empty: none.

    The same script records it from the classes.
    """
    kind, is_free = _sections().get(str(model_type), {}).get(section, ("", True))
    return said if isinstance(said, str) and said and is_free else kind
