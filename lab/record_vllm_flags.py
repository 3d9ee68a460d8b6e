"""Record which flags `vllm serve` has: `PYTHON lab/record_vllm_flags.py`, where PYTHON has vLLM installed.

Writes src/tokenyard/deploy/vllm_serve/recorded/VERSION.json (0.33.json for vLLM 0.33.0): of every flag
its names, how its value is written, the values it may have and its default. What each of them means to a replay stands
in src/tokenyard/deploy/vllm_serve/flags.toml; a test checks that it covers exactly what is recorded here.
No GPU is needed, and no text of vLLM's is kept.
"""

from __future__ import annotations

import argparse
import json
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["main", "recorded_flags"]

FOLDER = Path(__file__).resolve().parent.parent / "src" / "tokenyard" / "deploy" / "vllm_serve" / "recorded"
_PARSERS = tuple(f"vllm.entrypoints.{where}.cli_args" for where in ("common", "launchers", "openai"))
"""Where vLLM makes the parser of `vllm serve`, the newest versions first."""
_READERS = {
    "int": "int",
    "float": "float",
    "human_readable_int": "readable_int",
    "human_readable_int_or_auto": "readable_int_or_auto",
    "loads": "json",
    "parse_dataclass": "json",
    "union_dict_and_str": "json_or_text",
}
"""Name of vLLM's function that reads a value -> what we call such values. All others are texts."""


def _vllm_version() -> str:
    try:
        return str(import_module("vllm").__version__).partition("+")[0]
    except ModuleNotFoundError:
        raise SystemExit("this Python has no vLLM") from None


def _parser() -> argparse.ArgumentParser:
    """The parser of `vllm serve`. Without a GPU vLLM cannot tell what device it runs on, so it is told."""
    platform = import_module("vllm.platforms").current_platform
    if not platform.device_type:
        type(platform).device_type = "cuda"
    flexible = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    for name in _PARSERS:
        try:
            module = import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise
            continue
        parser: argparse.ArgumentParser = module.make_arg_parser(flexible(prog="vllm serve"))
        return parser
    raise SystemExit("this vLLM makes its parser elsewhere: add the module to _PARSERS")


def _reader(read: Any) -> str:
    """The name of the function that reads a value, below vLLM's wrappers of it."""
    while True:
        inside = [
            cell.cell_contents for cell in getattr(read, "__closure__", None) or () if callable(cell.cell_contents)
        ]
        if not inside or "<lambda>" in getattr(read, "__name__", ""):
            return str(getattr(read, "__name__", "text"))
        if getattr(read, "__name__", "") in _READERS:
            return str(read.__name__)
        read = inside[0]


def _kind(action: argparse.Action) -> str:
    if isinstance(action, argparse.BooleanOptionalAction):
        return "pair"
    if action.nargs == 0:
        return "switch"
    return _READERS.get(_reader(action.type), "text")


def _plain(value: Any) -> Any:
    """The default, if it is a number, a text, a truth value or a list of such; None for whatever else vLLM has."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, list | tuple) and all(isinstance(each, str | int) for each in value):
        return list(value)
    return value if isinstance(value, bool | int | float | str) and value != argparse.SUPPRESS else None


def _flag(action: argparse.Action) -> dict[str, Any]:
    long = [name for name in action.option_strings if name.startswith("--")]
    off = set(getattr(action, "negative_option_strings", ())) | {name for name in long if name.startswith("--no-")}
    names = set(action.option_strings) - {long[0]} - off
    known: dict[str, Any] = {"name": long[0].removeprefix("--"), "kind": _kind(action)}
    if names:
        known["other_names"] = sorted(names)
    if off:
        known["off_names"] = sorted(off)
    if action.nargs in ("+", "*", "?"):
        known["values"] = action.nargs
    if action.choices is not None:
        known["choices"] = sorted(str(each) for each in action.choices if each not in (None, "None"))
    if isinstance(action, argparse._AppendAction):  # noqa: SLF001 - argparse has no public name for it
        known["repeats"] = True
    default = _plain(action.default)
    if default is not None:
        known["default"] = default
    return known


def recorded_flags() -> dict[str, Any]:
    """The file's content: version, and flags by name."""
    actions = [action for action in _parser()._actions if action.option_strings and action.dest != "help"]  # noqa: SLF001
    flags = sorted((_flag(action) for action in actions), key=lambda flag: flag["name"])
    return {"vllm": _vllm_version(), "flags": flags}


def main() -> None:
    """Write the file and say how many flags there are."""
    found = recorded_flags()
    path = FOLDER / (".".join(found["vllm"].split(".")[:2]) + ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(flag, ensure_ascii=False)}" for flag in found["flags"])
    path.write_text(f'{{"vllm": {json.dumps(found["vllm"])}, "flags": [\n{lines}\n]}}\n')
    print(
        f"{path.relative_to(FOLDER.parent.parent.parent.parent)}: {len(found['flags'])} flags of vLLM {found['vllm']}"
    )


if __name__ == "__main__":
    main()
