"""What ``--mm-processor-kwargs`` changes of how large images and videos are, by vLLM's classes for Qwen's families.

``lab/record_processor_kwargs.py`` has asked them, beside transformers' own processors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokenyard.core.profiles import release_facts
from tokenyard.core.releases import VERSIONS
from tokenyard.errors import ConfigError, NoStartError
from tokenyard.models.images.largest import with_largest_images
from tokenyard.models.images.processors import Processors
from tokenyard.models.images.videos import KNOWN, WHOLE
from tokenyard.models.spec import ModelSpec

_FIELD = "mm_processor_kwargs"
_EDGES = {"shortest_edge": "min_pixels", "longest_edge": "max_pixels"}
"""Fields of ``size``, and the name that each has beside it."""


def with_processor_kwargs(
    model: ModelSpec, raw: Mapping[str, Any], processors: Processors, given: str | None, version: str
) -> tuple[ModelSpec, Processors]:
    """The model with its largest image and video, and its processors, as the arguments have them.

    What no rule reads is noted as ignored. ``raw`` is the model's ``config.json``. ConfigError for a value that
    cannot be, NoStartError for a ``size`` of which an edge is missing.
    """
    said = _arguments(given)
    if not said or not model.encoders:
        return model, processors
    told, unread = overlaid(processors, said, model.architecture, version)
    notes = tuple(f"{_FIELD} {each}: how large images and videos are" for each in unread)
    encoders = with_largest_images(model.encoders, model.architecture, raw, told)
    return replace(model, encoders=encoders, ignored=(*model.ignored, *notes)), told


def processors_told(
    processors: Processors, raw: Mapping[str, Any], said: Mapping[str, Any] | None, version: str = VERSIONS[-1]
) -> Processors:
    """What the processors of a ``config.json`` are told with arguments. ConfigError for one that no rule reads."""
    if said is not None and not isinstance(said, Mapping):
        raise ConfigError(_FIELD, said, 'give arguments by name: {"max_pixels": 1003520}')
    named = raw.get("architectures") or [""]
    told, unread = overlaid(processors, said or {}, named[0], version)
    if unread:
        raise ConfigError(_FIELD, unread[0], "no rule for sizes of this model reads it: leave it out")
    return told


def overlaid(
    processors: Processors, said: Mapping[str, Any], architecture: str, version: str
) -> tuple[Processors, list[str]]:
    """What the processors are told with arguments beside their files; the arguments that nothing here reads."""
    known = (*_EDGES.values(), "size") if architecture in KNOWN else ()
    heeded = {name: value for name, value in said.items() if name in known and value is not None}
    unread = [json.dumps({name: value}) for name, value in said.items() if name not in (*known, "device")]
    if not heeded:
        return processors, unread
    of_videos = heeded
    if architecture in WHOLE:  # their processor of videos takes ``size`` alone (``videos_have_own_bounds``)
        of_videos = {name: value for name, value in heeded.items() if name == "size"}
        others = [name for name in heeded if name != "size"]
        unread += [f"{name} of videos" for name in others if not release_facts(version).videos_have_own_bounds]
    image, video = (
        _changed(stored, new) for stored, new in ((processors.image, heeded), (processors.video, of_videos))
    )
    return Processors(image, video, _FIELD, _FIELD), unread


def _changed(stored: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A file's fields with arguments in their place: ``size`` as a whole, whose edges other names win over."""
    kept = {name: value for name, value in stored.items() if "size" not in new or name not in _EDGES.values()}
    changed = {**kept, **new}
    size = new.get("size")
    if size is None:
        return changed
    if not isinstance(size, dict):
        raise ConfigError(f"{_FIELD}.size", size, 'give {"shortest_edge": PIXELS, "longest_edge": PIXELS}')
    for edge, other in _EDGES.items():
        if edge not in size and other not in new:
            raise NoStartError(
                f"{_FIELD}.size = {json.dumps(size)} has no {edge}, which its processor needs: give it as well",
                f"{_FIELD}.size",
                size,
                f"give {edge} as well",
            )
    return changed


def _arguments(given: str | None) -> dict[str, Any]:
    if given is None:
        return {}
    try:
        said = json.loads(given)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise ConfigError(_FIELD, given, 'give a JSON object: {"max_pixels": 1003520}')
    return said
