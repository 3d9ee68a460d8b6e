#!/usr/bin/env python3
"""Writes the keywords of ``Deployment(...)`` and of questions for type checkers and editors; ``--check`` compares.

They are the settings that the code declares, and the flags of vLLM that were recorded.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tokenyard.deploy.setting_values import kinds_in
from tokenyard.deploy.settings import NO_SETTING, DeploymentSettings, Settings
from tokenyard.deploy.vllm_serve.flags import OTHER_NAMES, flag_table
from tokenyard.questions.settings import TrafficSettings

__all__ = ["generated_files"]

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "tokenyard"
HEAD = '''"""{about}

Made by scripts/generate_keywords.py: change it there. Only type checkers and editors load it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypeAlias, TypedDict

Text: TypeAlias = str | float | PathLike[str] | Mapping[str, Any] | Sequence[Any]
"""A text, or what becomes one: a number, a path, JSON."""


class {name}(TypedDict, total=False):
    """{text}"""

'''
_OBJECTS = {"latency", "router", "eviction"}
"""Settings for which an object of one's own may be given as well."""
_POSITIONAL = {"serve", "config"}
"""Parameters that ``Deployment`` names itself."""


def _in_python(kind: Any) -> str:
    """What may be given for a setting of this kind: a text of its value is as good, and None takes it back."""
    found = {"None": None}
    for each in kinds_in(kind):
        if get_origin(each) is Literal:
            words = [f"Literal[{', '.join(json.dumps(word) for word in get_args(each))}]"]
        elif isinstance(each, type) and issubclass(each, Enum):
            words = ["str"]
        elif each is bool:
            words = ["bool"]
        elif each is str:
            words = ["Text"]
        elif each is Path:
            words = ["str", "PathLike[str]"]
        elif get_origin(each) is tuple:
            words = [f"Sequence[{get_args(each)[0].__name__}]", "str"]
        else:
            words = [each.__name__, "str"]
        found = {**dict.fromkeys(words), **found}
    return " | ".join(found)


def _kinds(group: type[Settings]) -> dict[str, Any]:
    hints = get_type_hints(group, include_extras=True)
    return {name: get_type_hints(group)[name] for name, hint in hints.items() if NO_SETTING not in get_args(hint)}


def _deployment() -> dict[str, str]:
    own: dict[str, Any] = {}
    for group in get_type_hints(DeploymentSettings).values():
        own |= _kinds(group)
    flags = {each.field for each in flag_table()} | set(OTHER_NAMES)
    found = {
        **dict.fromkeys(flags, "Any"),
        **{name: _in_python(kind) for name, kind in own.items()},
        **dict.fromkeys(sorted(_OBJECTS), "object"),
    }
    return {name: kind for name, kind in found.items() if name not in _POSITIONAL and name.isidentifier()}


def _traffic() -> dict[str, str]:
    return {name: _in_python(kind) for name, kind in _kinds(TrafficSettings).items()}


def _written(about: str, name: str, text: str, keywords: Mapping[str, str]) -> str:
    lines = "".join(f"    {keyword}: {kind}\n" for keyword, kind in sorted(keywords.items()))
    return HEAD.format(about=about, name=name, text=text) + lines


def generated_files() -> dict[Path, str]:
    """Path -> what stands in it."""
    return {
        PACKAGE / "deploy" / "keywords.py": _written(
            "Settings of a deployment by name.",
            "DeploymentKeywords",
            "Our settings, and the flags of vLLM.",
            _deployment(),
        ),
        PACKAGE / "questions" / "keywords.py": _written(
            "Settings of what arrives, by name.",
            "TrafficKeywords",
            "What ``**arrivals`` of a question takes.",
            _traffic(),
        ),
    }


def main() -> int:
    """Write the files, or say which are not up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [path for path, text in generated_files().items() if not path.is_file() or path.read_text("utf-8") != text]
    for path in stale:
        if check:
            print(f"{path.name} is not what scripts/generate_keywords.py writes: run it", file=sys.stderr)
        else:
            path.write_text(generated_files()[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
