"""Programs and notes that hold a command: Python that starts a process, Markdown, lines of a runner's log.

A program is not run. Its constants and its lists of words are read from its syntax tree; what only a run would tell
stays as a variable that nothing sets.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from tokenyard.deploy.start_facts import HeaderNote, Said
from tokenyard.deploy.texts.commands import (
    ContainerCommand,
    is_vllm_image,
    script_started,
    version_installed,
    version_of_image,
    words_started,
)
from tokenyard.deploy.texts.manifests import gpu_named
from tokenyard.errors import ConfigError

_PYTHON = re.compile(r"^(?:import|from)[ \t]+[A-Za-z_][\w.]*", re.MULTILINE)
_FENCE = re.compile(r"^```[\w+-]{0,30}[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_IMAGE = re.compile(r"(?<![\w/])[\w.-]{1,60}(?:/[\w.-]{1,60}){1,4}:[\w.-]{1,100}")
_LISTED = re.compile(r"\[((?:\S*/)?vllm serve [^\n]*)\]")
_LISTED_WORD = re.compile(r"(?:[^\s{}]|\{(?:[^{}]|\{[^{}]*\})*\})+")
_MOST_CHARACTERS = 1 << 17
_NOT_RUN = HeaderNote("Python program", "not run", "its constants and its lists of words are read, not what it decides")


# ---------------------------------------------------------------------------------------------------------------------
# Python: ``cmd = ["vllm", "serve", MODEL]; cmd += ["--port", str(8000)]; subprocess.Popen(cmd)``.


def is_program(text: str) -> bool:
    """Whether a text is a module of Python."""
    if len(text) > _MOST_CHARACTERS or _PYTHON.search(text) is None:
        return False
    return _module(text) is not None


def program_started(text: str) -> list[ContainerCommand]:
    """What the program starts, where a list or a text in it is a whole command. Raises ConfigError."""
    module = _module(text)
    assert module is not None
    program = _Program(module)
    found: list[ContainerCommand] = []
    for words in program.lists:
        started = words_started(words, "serve") if _starts(words) else None
        if started is not None:
            found.append(started)
    for said in program.texts if not found else ():
        started = script_started(said, "serve") if "vllm serve" in said or "vllm.entrypoints" in said else None
        if started is not None:
            found.append(started)
    unlike = [each for i, each in enumerate(found) if each.words not in (one.words for one in found[:i])]
    image = next((each for each in program.texts if ":" in each and is_vllm_image(each)), "")
    version = version_of_image(image) or version_installed(text)
    return [
        replace(
            each, version=each.version or version, gpu=each.gpu or program.gpu, gpus=each.gpus or program.gpus,
            notes=(*each.notes, _NOT_RUN),
        )
        for each in unlike
    ]  # fmt: skip


def _module(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _starts(words: list[str]) -> bool:
    return any(word.rpartition("/")[2] == "vllm" for word in words) or any("vllm.entrypoints" in word for word in words)


class _Program:
    """What stands in a module: lists of words, texts, and the GPU that a decorator asks for."""

    def __init__(self, module: ast.Module) -> None:
        self.lists: list[list[str]] = []
        self.texts: list[str] = []
        self.gpu: Said | None = None
        self.gpus: Said | None = None
        self._constants: dict[str, str] = {}
        self._named: dict[str, list[str]] = {}
        for node in _in_order(module):
            self._read(node)

    def _read(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if isinstance(node.value, ast.List):
                self._named[name] = words = self._words(node.value)
                self.lists.append(words)
            elif (text := self._text(node.value)) is not None:
                self._constants[name] = text
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self._extend(node.target.id, node.value)
        elif isinstance(node, ast.Call):
            self._called(node)
        elif isinstance(node, ast.Constant | ast.JoinedStr) and (text := self._text(node)) is not None:
            self.texts.append(text)
        elif isinstance(node, ast.List):
            words = self._words(node)
            if words not in self.lists:
                self.lists.append(words)

    def _called(self, node: ast.Call) -> None:
        """A list that is extended; a function of Modal's, or a service of BentoML's, which names its GPU."""
        func = node.func
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and node.args:
            if func.attr == "extend":
                self._extend(func.value.id, node.args[0])
            elif func.attr == "append":
                self._extend(func.value.id, ast.List(elts=[node.args[0]]))
        for keyword in node.keywords:
            kind = self._text(keyword.value) if keyword.arg in ("gpu", "gpu_type") else None
            if kind is not None and self.gpu is None:
                name, _, count = kind.partition(":")
                self.gpu = Said(gpu_named(name) or name, f"{keyword.arg}={kind!r} of the program")
                self.gpus = Said(count, f"{keyword.arg}={kind!r} of the program") if count.isdecimal() else None

    def _extend(self, name: str, value: ast.AST) -> None:
        if name in self._named and isinstance(value, ast.List):
            self._named[name] += self._words(value)

    def _words(self, node: ast.List) -> list[str]:
        words: list[str] = []
        for each in node.elts:
            if isinstance(each, ast.Starred) and isinstance(each.value, ast.Name):
                words += self._named.get(each.value.id, [f"${each.value.id}"])
            else:
                text = self._text(each)
                words.append(f"${{{ast.unparse(each)}}}" if text is None else text)
        return words

    def _text(self, node: ast.AST) -> str | None:
        """The text of a constant, of a name that stands for one, and of what is made of them."""
        if isinstance(node, ast.Constant):
            return str(node.value) if isinstance(node.value, str | int | float) else None
        if isinstance(node, ast.Name):
            return self._constants.get(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
            return self._text(node.args[0])
        if isinstance(node, ast.Call) and len(node.args) == 2 and ast.unparse(node.func) in _WITH_DEFAULT:
            return self._text(node.args[1])
        if isinstance(node, ast.JoinedStr):
            parts = [self._text(each) for each in node.values]
            return "".join(part or "$UNKNOWN" for part in parts)
        return self._text(node.value) if isinstance(node, ast.FormattedValue) else None


_WITH_DEFAULT = ("os.environ.get", "os.getenv", "environ.get", "getenv")
"""Functions whose second argument is what a variable is where it is not set."""


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes as they stand in the text, statements before what they hold."""
    for child in ast.iter_child_nodes(node):
        yield child
        yield from _in_order(child)


# ---------------------------------------------------------------------------------------------------------------------
# Markdown: what stands between fences. Logs of runners: ``command: [vllm serve MODEL --flag {"a": 1}]``.


def is_fenced(text: str) -> bool:
    """Whether a text has a block between fences that starts vLLM."""
    return any(_of_block(block) for block in _FENCE.findall(text[:_MOST_CHARACTERS]))


def fenced_started(text: str) -> list[ContainerCommand]:
    """What its blocks start; the image that the text around them names says the version."""
    found = [each for block in _FENCE.findall(text[:_MOST_CHARACTERS]) if (each := _of_block(block)) is not None]
    unlike = [each for i, each in enumerate(found) if each.words not in (one.words for one in found[:i])]
    image = next((each for each in _IMAGE.findall(text) if is_vllm_image(each)), "")
    return [replace(each, version=each.version or version_of_image(image)) for each in unlike]


def _of_block(block: str) -> ContainerCommand | None:
    try:
        return script_started(block, "serve") if "vllm" in block or block.lstrip().startswith("--") else None
    except ConfigError:
        return None


def is_runner_log(text: str) -> bool:
    """Whether a text has a list of words without quotes, as runners log it."""
    return _LISTED.search(text) is not None


def runner_started(text: str) -> list[ContainerCommand]:
    """What the last list in the log starts; a JSON value in it is one word."""
    words = _LISTED_WORD.findall(_LISTED.findall(text)[-1])
    image = next((each for each in _IMAGE.findall(text) if is_vllm_image(each)), "")
    started = words_started(words, "serve")
    return [] if started is None else [replace(started, version=version_of_image(image))]
