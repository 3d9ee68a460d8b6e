"""Units of systemd: ``ExecStart=`` (in Podman's, ``Image=`` and ``Exec=``) and the variables that the unit sets."""

from __future__ import annotations

import re
from dataclasses import replace

from tokenyard.errors import ConfigError
from tokenyard.launch.shell import ShellError, split_words
from tokenyard.launch.texts.command import script_started
from tokenyard.launch.texts.started import Found, Started
from tokenyard.redaction import hidden_beginning

__all__ = ["is_unit", "unit_started"]

_SECTION = re.compile(r"^[ \t]*\[(?:Service|Container)\][ \t\r]*$", re.MULTILINE)
_EXEC = re.compile(r"^[ \t]*(?:ExecStart|Exec)[ \t]*=", re.MULTILINE)
_PREFIXES = "@-:+!|"


def is_unit(text: str) -> bool:
    """Whether a text is a unit that runs something."""
    return _SECTION.search(text) is not None and _EXEC.search(text) is not None


def unit_started(text: str) -> list[Started]:
    """What the unit starts, if that is vLLM. Raises ConfigError."""
    environment: dict[str, str] = {}
    notes: list[Found] = []
    commands: list[str] = []
    image = in_container = ""
    for line in _joined(text):
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if not equals:
            continue
        if name == "Environment":
            environment.update(_assignments(value) if value else {})
        elif name == "EnvironmentFile":
            notes.append(Found(name, value, "variables in it are not read"))
        elif name == "Image":
            image = value
        elif name == "Exec":
            in_container = value
        elif name == "ExecStart":
            commands = [*commands, value.lstrip(_PREFIXES)] if value else []
    if image and in_container:  # of Podman's quadlets: words that follow the image's entry point
        commands = [f"podman run {image} {in_container}"]
    found = [script_started(command, "serve", environment) for command in commands]
    return [replace(each, notes=(*notes, *each.notes)) for each in found if each is not None]


def _joined(text: str) -> list[str]:
    """Lines, with those that a backslash continues; comments between them are left out."""
    lines: list[list[str]] = [[]]
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith(("#", ";")):
            continue
        goes_on = bare.endswith("\\")
        lines[-1].append(bare[:-1].strip() if goes_on else bare)
        if not goes_on:
            lines.append([])
    return [" ".join(parts) for parts in lines]


def _assignments(value: str) -> dict[str, str]:
    try:
        words = split_words(value)
    except ShellError as error:
        raise ConfigError("serve", hidden_beginning(f"Environment={value}"), str(error)) from None
    return {name: said for name, equals, said in (word.partition("=") for word in words) if equals}
