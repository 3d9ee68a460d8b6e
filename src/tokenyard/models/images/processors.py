"""What a checkpoint's files say of its processors: how images are read, and how videos are.

Since its version 5, transformers writes one ``processor_config.json`` with a section for each; before, each had a file
of its own. A section wins over a file, as its ``get_image_processor_dict`` and ``get_video_processor_dict`` have it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenyard.errors import ConfigError

_BOTH = "processor_config.json"
IMAGE_FILE = "preprocessor_config.json"
VIDEO_FILE = "video_preprocessor_config.json"


class Processors(NamedTuple):
    """Fields of both, and where they stand; nothing where no file has any."""

    image: Mapping[str, Any]
    video: Mapping[str, Any]
    image_from: str = IMAGE_FILE
    """For messages: the file, and its section."""
    video_from: str = VIDEO_FILE


def processors_beside(where: str | Path) -> Processors:
    """What lies beside a ``config.json``. ConfigError for a file that cannot be read, or a section that is no object.

    Fields of the processor that holds both count for videos, which some classes make by them.
    """
    file = Path(where)
    both, of_images, of_videos = (object_beside(file, name) for name in (_BOTH, IMAGE_FILE, VIDEO_FILE))
    around = {name: value for name, value in both.items() if name not in ("image_processor", "video_processor")}
    image, image_from = _section(file, both, "image_processor") or (of_images, IMAGE_FILE)
    written = (of_videos, VIDEO_FILE) if of_videos else (of_images, IMAGE_FILE)  # old checkpoints have one for both
    video, video_from = _section(file, both, "video_processor") or written
    return Processors(image, {**around, **video}, image_from, video_from)


def _section(file: Path, both: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], str] | None:
    found = both.get(name)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ConfigError(f"{name} of {file.with_name(_BOTH)}", found, "give an object, as transformers writes it")
    return found, f"{_BOTH}, {name}"


def object_beside(file: Path, name: str) -> Mapping[str, Any]:
    """What a file of this name beside a ``config.json`` holds; nothing where there is none."""
    beside = file.with_name(name)
    if not file.is_file() or not beside.is_file():
        return {}
    try:
        found = json.loads(beside.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError("model", str(beside), f"cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError("model", str(beside), "give an object, as a checkpoint has there")
    return found
