"""Which rule an architecture has for its images, and which fields of its files fill it.

``families.json`` names the rule of each, ``rules.json`` says which fields of ``config.json`` and of the image processor
fill it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache, partial
from math import inf
from typing import Any, Literal

import msgspec

from tokenyard.errors import ConfigError
from tokenyard.files import packaged
from tokenyard.models.class_defaults import class_defaults
from tokenyard.models.expressions import Expressions
from tokenyard.models.fields import Fields
from tokenyard.models.images import crops, rules
from tokenyard.models.images.processors import IMAGE_FILE
from tokenyard.models.images.rules import ImageRule
from tokenyard.models.kinds import Given, Kind, Kinds, Maker

# ---------------------------------------------------------------------------------------------------------------------
# The files' fields.


class ProcessorError(ConfigError):
    """A processor is told what cannot be."""


def _filled(section: Mapping[str, Any]) -> dict[str, Any]:
    """A section with what its configuration class, and those of the sections within, fill in."""
    whole = {**class_defaults(section.get("model_type")), **section}
    return {name: _filled(each) if isinstance(each, Mapping) else each for name, each in whole.items()}


class ImageFields:
    """A model's ``config.json`` and what a processor is told beside it, in a ``file`` that messages name."""

    def __init__(self, config: Mapping[str, Any], processor: Mapping[str, Any], file: str = IMAGE_FILE) -> None:
        self.config = _filled(config)
        self._processor = processor
        self._file = file

    def value(self, path: str, default: Any = None) -> Any:
        """A field of the configuration, ``section.field``; ``default`` where there is none, or null."""
        found: Any = self.config
        for name in path.split("."):
            if not isinstance(found, Mapping):
                return default
            found = found.get(name)
        return default if found is None else found

    def count(self, path: str, default: int | None = None) -> int:
        """A whole number above 0. Raises ConfigError."""
        return self._checked(path, self.value(path, default))

    def edge(self, path: str) -> int:
        """The same, of a length that files also give twice, for both edges."""
        found = self.value(path)
        return self._checked(path, found[0] if isinstance(found, list) and found else found)

    def limit(self, path: str, default: int) -> int:
        """A whole number of the processor's file: ``size.longest_edge``. Raises ProcessorError."""
        found: Any = self._processor
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return default if found is None else self._whole(path, found)

    def pair(self, name: str, default: Any, least: int = 1) -> tuple[int, int]:
        """Two whole numbers of it, from ``least``; ``default``: both, or twice one. Raises ProcessorError."""
        found = self.given(name, [default] * 2 if isinstance(default, int) else default)
        if not isinstance(found, list | tuple) or len(found) != 2:
            raise ProcessorError(f"{name} of {self._file}", found, "give two whole numbers: [14, 14]")
        first, second = (self._whole(name, each, least) for each in found)
        return first, second

    def number(self, name: str, default: float) -> float:
        """A number above 0 of it. Raises ProcessorError."""
        found = self.given(name, default)
        if not isinstance(found, int | float) or isinstance(found, bool) or not 0 < found < inf:
            raise ProcessorError(f"{name} of {self._file}", found, "give a number above 0")
        return float(found)

    def _whole(self, name: str, value: Any, least: int = 1) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 40:
            above = "above 0" if least else "from 0"
            fix = f"give a whole number {above}: tokens of an image follow from it"
            raise ProcessorError(f"{name} of {self._file}", value, fix)
        return value

    def given(self, name: str, default: Any) -> Any:
        """What the processor's file says, whatever it is."""
        found = self._processor.get(name)
        return default if found is None else found

    def pixels(self, least: int, most: int, side: int = 1, frames: int = 1) -> tuple[int, int]:
        """Bounds of an image's area, or a video's volume, by either of the names that files have for them.

        Raises ProcessorError where the upper one leaves no room for one square with edges of ``side`` in each frame.
        """
        low = self.limit("min_pixels", self.limit("size.min_pixels", self.limit("size.shortest_edge", least)))
        high = self.limit("max_pixels", self.limit("size.max_pixels", self.limit("size.longest_edge", most)))
        if high < side * side * frames:
            fix = f"give {side * side * frames} at least: an embedding is made of so many pixels"
            raise ProcessorError(f"max_pixels or size.longest_edge of {self._file}", high, fix)
        return low, high

    @staticmethod
    def _checked(name: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 40:
            raise ConfigError(name, value, "give a whole number above 0: tokens of an image follow from it")
        return value


Sizes = tuple[tuple[int, int], ...]
_NAMES = {
    "image": "vision_config.image_size!",
    "vit_patch": "vision_config.patch_size!",
    "grid": "image // vit_patch",
}


class ImageValues(Expressions):
    """Values of the expressions in ``rules.json``, over the fields of one model's files."""

    def __init__(self, images: ImageFields) -> None:
        super().__init__(Fields("config.json", images.config), _NAMES)
        self._images = images
        self._called: dict[str, Callable[..., Any]] = {
            "both": lambda first, second, default: (images.limit(first, default), images.limit(second, default)),
            "edge": images.edge,
            "given": images.given,
            "int": int,
            "most_of": lambda name, default: max(map(int, images.value(name, {"": default}).values())),
            "pair": lambda name, default, least=1: images.pair(name, default, least),
            "pixels": images.pixels,
            "ratio": lambda name: tuple(int(each or 1) for each in str(images.value(name, "1/2")).partition("/")[::2]),
            "round": round,
            "sizes": self._sizes,
            "turned_sizes": self._turned_sizes,
        }

    def _field(self, text: str, bound: Mapping[str, Any], *, is_size: bool = False) -> Any:
        """A field of the configuration or, as ``file.``, of the processor, in the type of its default."""
        if text.endswith("!"):
            return self._images.count(text[:-1])
        path, _, default = text.partition("=")
        images, of_file = self._images, path.startswith("file.")
        name = path.removeprefix("file.")
        if default in ("true", "false"):
            return bool((images.given if of_file else images.value)(name, default == "true"))
        usual = self.value(default, **bound)
        if isinstance(usual, float):
            return images.number(name, usual) if of_file else float(images.value(name, usual))
        return images.limit(name, usual) if of_file else images.count(name, usual)

    def _call(self, node: ast.Call, bound: Mapping[str, Any]) -> Any:
        return self._called[ast.unparse(node.func)](*(self._walk(each, bound) for each in node.args))

    def _sizes(self, name: str) -> Sizes:
        found = self._images.value(name)
        if not isinstance(found, list) or not found:
            raise ConfigError(name, found, "give the sizes that images may be cut from: [[height, width], ...]")
        return tuple((int(high), int(wide)) for high, wide in found)

    def _turned_sizes(self) -> Sizes:
        name = "candidate_resolutions"
        found = self._images.given(name, self._images.value(name, [[384, 384]]))
        return tuple((int(high), int(wide)) for wide, high in found)


@cache
def _kinds() -> dict[str, Kind]:
    return msgspec.json.decode(packaged(__package__, "rules.json"), type=Kinds).kinds


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How large pictures and videos are that a few architectures read."""

    architectures: tuple[str, ...]
    image: dict[str, Any] = {}
    """The kind of the rule of a picture in ``rules.json``, and what it is given; empty: none is known."""
    videos: Literal["", "per frame", "whole"] = ""
    """Whether pixels are bounded of each frame of a video or of the whole; empty: it is not known."""
    largest_video: dict[str, Any] = {}
    """Fields of :class:`~tokenyard.models.images.largest.LargestVideo`."""
    frames: dict[str, Any] = {}
    """The function there that says how large the frames of the largest video are, and what it is given."""


class _Families(msgspec.Struct, forbid_unknown_fields=True):
    """``families.json``."""

    about: tuple[str, ...]
    families: tuple[Family, ...]


FAMILIES: Mapping[str, Family] = {
    name: family
    for family in msgspec.json.decode(packaged(__package__, "families.json"), type=_Families).families
    for name in family.architectures
}
"""Architecture -> what is known of its pictures and videos."""


def _made(given: Given, images: ImageFields) -> ImageRule:
    maker = Maker(_kinds(), ImageValues(images), rules, crops)
    try:
        rule: ImageRule | None = maker.made(given["is"], maker.own(given))
    except (ValueError, IndexError) as error:
        raise ConfigError("model", given["is"], f"a size of its images does not work: {error}") from None
    if rule is None:
        raise ConfigError(
            "model", given["is"], "tokens of its images do not follow from files: give the tokens instead"
        )
    return rule


RULES: Mapping[str, Callable[[ImageFields], ImageRule]] = {
    name: partial(_made, family.image) for name, family in FAMILIES.items() if family.image
}
"""Architecture -> what makes its rule of its fields."""


# ---------------------------------------------------------------------------------------------------------------------
# Asking.


def image_rule(
    config: Mapping[str, Any], processor: Mapping[str, Any] | None = None, file: str = IMAGE_FILE
) -> ImageRule:
    """The rule of a ``config.json``; ConfigError where none is known for its architecture, or a field is missing.

    ``processor`` is what the image processor is told, in ``file``.
    """
    named = config.get("architectures") or [""]
    architecture = named[0] if isinstance(named, list) else ""
    if architecture not in RULES:
        raise ConfigError("model", architecture, "no rule is known for its images: give their tokens instead")
    return RULES[architecture](ImageFields(config, processor or {}, file))
