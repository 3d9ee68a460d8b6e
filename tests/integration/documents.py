"""Examples in the documents: found, run, and their printed output compared.

    ```python      run; the blocks of one document share their names and their directory
    ```sh          run as by bash in that directory, with ``tokenyard`` on the path
    ```text        directly after one of these: what it printed
    ```console     shown only (needs data, minutes or a GPU)

``TOKENYARD_UPDATE_DOCS=1`` writes what was printed into the document instead of comparing it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.command import call, environment

__all__ = ["Block", "Session", "blocks_of"]

_SHELLS = re.compile(r"[|<>&;$`*?~#]")
"""What bash does something with."""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    language: str
    text: str
    line: int
    """Where its first line stands."""
    span: tuple[int, int]
    """Where its text stands in the document."""
    follows: bool
    """Nothing but blank lines lies between it and the block before."""


def blocks_of(document: str) -> Iterator[Block]:
    """All fenced blocks, in order."""
    end = 0
    for match in _FENCE.finditer(document):
        between = document[end : match.start()]
        line = document.count("\n", 0, match.start(2)) + 1
        yield Block(match[1], match[2], line, match.span(2), bool(end) and not between.strip())
        end = match.end()


def _plain_commands(text: str) -> list[tuple[list[str], str]] | None:
    """Words behind ``tokenyard`` and the file that takes what is printed; None where a line is more than that."""
    commands = []
    for line in filter(str.strip, text.replace("\\\n", " ").splitlines()):
        command, _, file = line.partition(" > ")
        if not command.startswith("tokenyard ") or _SHELLS.search(command + file):
            return None
        commands.append((shlex.split(command)[1:], file.strip()))
    return commands


class Session:
    """Runs the blocks of one document, one after another."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, block: Block) -> str:
        """What the block prints on standard output; AssertionError if it fails."""
        return self._python(block) if block.language == "python" else self._shell(block)

    def _python(self, block: Block) -> str:
        printed = io.StringIO()
        code = compile("\n" * (block.line - 1) + block.text, "document", "exec")
        with contextlib.chdir(self._directory), contextlib.redirect_stdout(printed):
            exec(code, self._names)
        return printed.getvalue()

    def _shell(self, block: Block) -> str:
        """In this process where the block is nothing but commands of ours, each perhaps into a file; else by bash."""
        commands = _plain_commands(block.text)
        if commands is not None:
            return "".join(self._command(words, file, block.line) for words, file in commands)
        return self._bash(block)

    def _command(self, words: list[str], file: str, line: int) -> str:
        done = call(*words, cwd=self._directory)
        assert done.code == 0, f"line {line}: exit code {done.code}\n{done.stdout}{done.stderr}"
        assert done.stderr == "", f"line {line}: {done.stderr}"
        if not file:
            return done.stdout
        (self._directory / file).write_text(done.stdout, encoding="utf-8")
        return ""

    def _bash(self, block: Block) -> str:
        binaries = self._directory / ".bin"
        if not binaries.exists():
            binaries.mkdir()
            program = binaries / "tokenyard"
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tokenyard.cli.main "$@"\n')
            program.chmod(0o755)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=self._directory,
            env=environment({"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"line {block.line}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.stderr == "", f"line {block.line}: {done.stderr}"
        return done.stdout
