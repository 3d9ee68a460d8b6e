"""Every value of a pasted text is used, named as passed over, or refused: it is changed, and what is told changes."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tokenyard.deploy.serve_line import ServeLine, read_serve_text
from tokenyard.errors import ConfigError

TESTS = Path(__file__).parents[1]
COMMANDS = (TESTS / "unit" / "launch" / "recipe_commands.txt").read_text().splitlines()
"""Commands of vLLM's recipe site (github.com/vllm-project/recipes, August 2026), by ``lab/recipe_share.py``."""
MANIFESTS = sorted((TESTS / "samples" / "texts").glob("*.yaml"))


def told(text: str) -> object:
    """What is made of a text, in all its parts, or why it is refused."""
    try:
        line = read_serve_text(text)
    except ConfigError as error:
        return str(error)
    given = [(str(each), each.replaced) for each in line.given]
    return given, line.environment, line.version, line.gpu, line.replicas, line.nodes, line.gpus, line.notes


def _is_assignment(words: list[str], at: int) -> bool:
    return "=" in words[at] and "vllm" in words[at:] and words[at].partition("=")[0].isidentifier()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_word_of_a_command(command: str) -> None:
    words = shlex.split(command)
    as_it_is = told(shlex.join(words))
    for at, word in enumerate(words):
        if _is_assignment(words, at) or word in ("vllm", "serve"):
            continue  # a variable that changes nothing is kept by name alone
        changed = (
            [*words[:at], *words[at + 1 :]] if word.startswith("-") else [*words[:at], f"{word}1", *words[at + 1 :]]
        )
        assert told(shlex.join(changed)) != as_it_is, word


def _leaves(value: Any, path: str = "") -> Iterator[tuple[Any, Any, str]]:
    """What holds a leaf, its key, and its path."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        name = f"{path}.{key}".strip(".") if isinstance(value, dict) else f"{path}[{key}]"
        if isinstance(value[key], dict | list):
            yield from _leaves(value[key], name)
        else:
            yield value, key, name


def _named(line: ServeLine) -> tuple[str, ...]:
    """Everything that notes about the text name."""
    return tuple(str(each.value) for each in line.passed_over)


def _is_named(path: str, value: Any, named: tuple[str, ...]) -> bool:
    parts = {part.partition("[")[0] for part in path.split(".")}
    around = {name.strip() for text in named for name in text.split(",")}
    return bool(parts & around) or any(path in text and str(value) in text for text in named)


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
def test_every_value_of_a_manifest(file: Path) -> None:
    documents = list(yaml.safe_load_all(file.read_text()))
    text = yaml.safe_dump_all(documents)
    as_it_is, named = told(text), _named(read_serve_text(text))
    changed = copy.deepcopy(documents)
    for holder, key, path in _leaves(changed):
        value = holder[key]
        where = path.partition("]")[2].strip(".") if path.startswith("[") else path
        if _is_named(where, value, named):
            continue
        holder[key] = value + 1 if isinstance(value, int) and not isinstance(value, bool) else f"{str(value).rstrip()}1"
        assert told(yaml.safe_dump_all(changed)) != as_it_is, path
        holder[key] = value


def test_there_are_two_hundred_texts() -> None:
    assert len(COMMANDS) + len(MANIFESTS) >= 200
