"""How many of the model names and commands of vLLM's recipe site are read here, and why others are not.

    git clone https://github.com/vllm-project/recipes
    PYTHONPATH=src python lab/recipe_share.py recipes [--gpu h200] [--names FILE] [--commands FILE] [--all]

``--names`` and ``--commands`` write what was found; ``tests/unit/launch`` holds both as they were in August 2026.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tokenyard import Deployment
from tokenyard.errors import TokenyardError
from tokenyard.models.named import model_called

_NAME = re.compile(r"^\s*model_id:\s*\"?([\w.-]+/[\w.-]+)\"?", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*```[\w-]*[ \t]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|\n)[ \t]*((?:[A-Z_0-9]+=\S+[ \t]+)*vllm serve (?:[^\n]*\\[ \t]*\n)*[^\n]*)")


def main() -> int:
    """Print both shares, and reasons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", type=Path, help="a checkout")
    parser.add_argument("--gpu", default="h200", help="on which commands are asked for (default: h200)")
    parser.add_argument("--names", type=Path, help="write the names to this file")
    parser.add_argument("--commands", type=Path, help="write the commands to this file")
    parser.add_argument("--all", action="store_true", help="print every name and command that is not read")
    flags = parser.parse_args()
    texts = [each.read_text(errors="replace") for each in sorted(flags.recipes.rglob("*")) if _is_page(each)]
    names = sorted({name for text in texts for name in _NAME.findall(text)})
    commands = sorted({command for text in texts for command in _commands(text)})
    for file, found in ((flags.names, names), (flags.commands, commands)):
        if file is not None:
            file.write_text("\n".join(found) + "\n")
    _print("names", names, _why_no_name, listed=flags.all)
    _print("commands", commands, lambda line: _why_no_answer(line, flags.gpu), listed=flags.all)
    return 0


def _is_page(path: Path) -> bool:
    return path.suffix in (".md", ".yaml") and path.is_file()


def _commands(text: str) -> Iterator[str]:
    for block in _FENCE.findall(text):
        for found in _COMMAND.findall(block):
            yield " ".join(found.replace("\\\n", " ").split())


def _why_no_name(name: str) -> str | None:
    try:
        model_called(name)
    except TokenyardError as error:
        return error.code or "unknown"
    return None


def _why_no_answer(line: str, gpu: str) -> str | None:
    try:
        Deployment(line, gpu=gpu).resolve()
    except TokenyardError as error:
        return f"{error.code} {getattr(error, 'field', '')}".strip()
    return None


def _print(what: str, found: list[str], why: object, *, listed: bool) -> None:
    assert callable(why)
    reasons = {each: why(each) for each in found}
    left = {each: reason for each, reason in reasons.items() if reason is not None}
    print(f"{what}: {len(found) - len(left)} of {len(found)} are read")
    for reason, count in Counter(left.values()).most_common():
        print(f"  {count:4} {reason}")
    for each, reason in left.items() if listed else ():
        print(f"    {reason}: {each}")


if __name__ == "__main__":
    sys.exit(main())
