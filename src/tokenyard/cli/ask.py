"""``tokenyard ask``: the questions that people come with, each with the command that answers it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from tokenyard.cli.support.console import print_json, results
from tokenyard.cli.support.flags.known import AskCommand
from tokenyard.cli.support.questions import QUESTIONS, Question
from tokenyard.errors import ConfigError


def execute(flags: AskCommand) -> int:
    """Print the menu, or the question that was chosen; always 0."""
    chosen = flags.question
    if flags.json:
        print_json(QUESTIONS if chosen is None else _meant(chosen))
        return 0
    console = results()
    if chosen is None:
        _print_menu(console)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            return 0
        console.print("\nWhich one? (a number; nothing ends this) ", end="")
        chosen = sys.stdin.readline().strip()
        if not chosen:
            return 0
    _print_question(_meant(chosen), console)
    return 0


def _meant(said: str) -> Question:
    """Return the question of this number, or the only one that has these words, or most of them. Raises ConfigError."""
    if said.isdecimal() and 1 <= int(said) <= len(QUESTIONS):
        return QUESTIONS[int(said) - 1]
    words = set[str]() if said.isdecimal() else _words(said)
    found = [each for each in QUESTIONS if words and words <= _words(f"{each.text} {each.command}")]
    if len(found) != 1:
        most = max(len(words & _words(each.text)) for each in QUESTIONS)
        found = [each for each in found or QUESTIONS if most > 1 and len(words & _words(each.text)) == most]
    if len(found) != 1 or not words:
        several = f"{len(found)} questions have it: " if len(found) > 1 else ""
        raise ConfigError(
            "QUESTION", said, f"{several}give a number from 1 to {len(QUESTIONS)}, as `tokenyard ask` lists them"
        )
    return found[0]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _print_menu(console: Console) -> None:
    for number, each in enumerate(QUESTIONS, 1):
        console.print(f"{number:>2}  [bold]{escape(each.text)}[/]\n    [cyan]{escape(each.command)}[/]", soft_wrap=True)
    console.print("\n`tokenyard ask 1` shows an example that runs as it is, and how sure its answer is.")


def _print_question(question: Question, console: Console) -> None:
    console.print(f"[bold]{escape(question.text)}[/]")
    for title, line in _lines(question):
        console.print(f"\n{title}")
        if title == "How sure is it?":
            console.print(Padding(escape(line), (0, 0, 0, 2)))
        else:
            console.print(f"  [cyan]{escape(line)}[/]", soft_wrap=True)


def _lines(question: Question) -> Iterator[tuple[str, str]]:
    yield "Of your server", question.command
    if question.example is not None:
        yield "An example that runs as it is", question.example
    yield "How sure is it?", question.sure
    yield "More", f"docs/questions/{question.page}"
