"""What the configuration classes of ``transformers`` fill in where a ``config.json`` leaves it out, as recorded."""

from __future__ import annotations

from typing import Any

from tokenyard.models.recorded import recorded


def class_defaults(model_type: object) -> dict[str, Any]:
    """What a file or a section of this ``model_type`` leaves out, as its configuration class fills it in.

    ``lab/record_class_defaults.py`` records it from the classes.
    """
    found: dict[str, Any] = recorded("class_defaults").get(model_type, {}) if isinstance(model_type, str) else {}
    return found


def section_type(model_type: object, section: str, said: object) -> str:
    """The kind of a section, as the class of the file around it makes it, whatever it ``said`` of itself; empty: none.

    The same script records it from the classes.
    """
    kind: str
    kind, is_free = recorded("class_sections").get(str(model_type), {}).get(section, ("", True))
    return said if isinstance(said, str) and said and is_free else kind
