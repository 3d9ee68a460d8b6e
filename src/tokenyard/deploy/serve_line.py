"""What --serve and --config name: a line, a manifest, a log or a file of flags."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenyard.deploy.start_facts import HeaderNote, Said, StartFacts
from tokenyard.deploy.vllm_serve.flags import GivenFlag, flag_table, flag_words
from tokenyard.deploy.vllm_serve.given import merged, read_words
from tokenyard.deploy.vllm_serve.shell import is_unresolved
from tokenyard.errors import ConfigError, FileError, near_names
from tokenyard.files import MIB, open_input, read_input
from tokenyard.quick_dataclass import dataclass
from tokenyard.redaction import HIDDEN, hidden, hidden_beginning, hidden_environment, hidden_text, is_secret_name

# ---------------------------------------------------------------------------------------------------------------------
# A file of flags for ``--config``, as ``vllm serve`` reads it: YAML, flat or nested.

MOST_BYTES = MIB
"""Most bytes of a file of flags, or of one that holds a line: far more than any has."""


def config_words(path: Path | str) -> list[str]:
    """The words that stand for the file's content. ConfigError naming the file if it cannot be used."""
    path = Path(path)
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError("config", str(path), "give a file that ends with .yaml or .yml")
    words: list[str] = []
    for name, value in _content(path).items():
        words += flag_words(f"--{name}", value)
    return words


def _content(path: Path) -> dict[str, Any]:
    from tokenyard.deploy.texts.data import YAMLError, yaml_documents  # noqa: PLC0415 - only where there is such a file

    try:
        documents = yaml_documents(read_input(path, MOST_BYTES).decode())
    except FileError as error:
        raise ConfigError("config", str(path), error.problem) from None
    except YAMLError as error:
        raise ConfigError("config", str(path), str(error)) from None
    except UnicodeDecodeError:
        raise ConfigError("config", str(path), "is not YAML: it is no text in UTF-8") from None
    if len(documents) > 1:
        raise ConfigError("config", str(path), f"has {len(documents)} documents: give the one with the flags")
    content = documents[0] if documents else None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ConfigError("config", str(path), "must hold flags and their values, such as `max-num-seqs: 64`")
    if {"apiVersion", "services", "containers", "servingEngineSpec"} & content.keys():
        raise ConfigError("config", str(path), f"is a manifest, not a file of flags: give --serve {path}")
    return content


# ---------------------------------------------------------------------------------------------------------------------
# What ``--serve`` and ``--config`` name: flags and values, and what else the text says of the deployment.
#
# Secrets end here: whatever a text holds of them is replaced as it is read (:mod:`tokenyard.redaction`).

_FILE_MARK = "@"
_NO_PATH = ("-", "{", "[")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLine(StartFacts):
    """What a user starts vLLM with; of its variables, the values of those alone that may change how vLLM runs."""

    given: list[GivenFlag] = field(default_factory=list)
    """Its flags, those of its ``--config`` file included; ``model`` is what stands behind ``vllm serve``."""

    def __str__(self) -> str:
        """The command line as a user types it; no secret is in it."""
        words = [word for each in self.given if each.flag.name != "model" for word in each.words]
        model = [str(each.value) for each in self.given if each.flag.name == "model"]
        return shlex.join(["vllm", "serve", *model, *words])


def read_serve_line(text: str, *, gpu: str | None = None) -> ServeLine:
    """The text itself, ``@FILE``, or the path of a file that holds it; ``gpu`` chooses where it offers several kinds.

    Raises ConfigError.
    """
    if text.startswith(_FILE_MARK):
        return _read_file(Path(text.removeprefix(_FILE_MARK)), gpu)
    if len(text.split()) == 1 and not text.startswith(_NO_PATH):
        if _is_file(text):
            return _read_file(Path(text), gpu)
        fix = "there is no such file, and it is no `vllm serve` line"
        raise ConfigError("serve", hidden_beginning(text), fix)
    if "\n" not in text and not text.startswith(_NO_PATH) and _is_file(text):
        return _read_file(Path(text), gpu)
    return read_serve_text(text, gpu=gpu)


def read_serve_text(text: str, *, gpu: str | None = None) -> ServeLine:
    """What ``text`` says. Raises ConfigError naming the word that cannot be understood."""
    from tokenyard.deploy.texts.kinds import started_by  # noqa: PLC0415 - takes time that plain flags need not spend

    started = started_by(text, gpu=gpu)
    given = _read(started.words, "serve")
    config = next((each for each in given if each.flag.name == "config"), None)
    from_file = read_config_file(config.value) if config is not None else []
    return ServeLine(
        given=merged(from_file, given),
        environment=hidden_environment(started.environment),
        version=_hidden(started.version),
        gpu=_hidden(started.gpu),
        replicas=_hidden(started.replicas),
        nodes=started.nodes,
        gpus=_hidden(started.gpus),
        resolved=started.resolved,
        kv=started.kv,
        notes=_hidden_notes(started.notes),
        passed_over=_hidden_notes(started.passed_over),
    )


def _hidden_notes(notes: Sequence[HeaderNote]) -> tuple[HeaderNote, ...]:
    return tuple(HeaderNote(each.name, hidden(each.name, each.value), each.why) for each in notes)


def _hidden(said: Said | None) -> Said | None:
    return None if said is None else Said(hidden_text(said.value), hidden_text(said.where))


def read_config_file(path: Path | str) -> list[GivenFlag]:
    """The flags of a YAML file. Raises ConfigError."""
    return _read(config_words(path), str(path))


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a name that is too long, or with a zero byte
        return False


def _read_file(path: Path, gpu: str | None) -> ServeLine:
    text = _file(path)
    try:
        return read_serve_text(text, gpu=gpu)
    except ConfigError as error:
        if error.field != "serve" or not isinstance(error.value, str) or not text.strip().startswith(error.value[:20]):
            raise
        # What the file holds may be secret; its name is enough.
        raise ConfigError("serve", str(path), error.marked_fix) from None


def _file(path: Path) -> str:
    """The text of a file; of a start-up log, which may be long, the beginning."""
    from tokenyard.deploy.texts.kinds import MOST_OF_A_LOG  # noqa: PLC0415 - as above
    from tokenyard.deploy.texts.startup_log import is_startup_log  # noqa: PLC0415

    try:
        with open_input(path) as file:
            data = file.read(MOST_OF_A_LOG)
    except FileError as error:
        raise ConfigError("serve", str(path), error.problem) from None
    except OSError as error:
        raise ConfigError("serve", str(path), f"cannot be read: {error.strerror or error}") from None
    text = data.decode(errors="replace")
    if is_startup_log(text):
        return text
    if len(data) > MOST_BYTES:
        raise ConfigError("serve", str(path), f"is larger than {MOST_BYTES:,} bytes, and no start-up log of vLLM")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError("serve", str(path), "is not text in UTF-8") from None


def check_joined(words: Sequence[str], source: str) -> None:
    """Raise ConfigError for ``--api-key= WORD``: the word may be a model, or the key."""
    for flag, word in pairwise(words):
        if flag.startswith("-") and flag.endswith("=") and is_secret_name(flag) and not word.startswith("-"):
            raise ConfigError(source, flag, "has no value, and a word behind it: join them, or leave the flag out")


def _read(words: Sequence[str], source: str) -> list[GivenFlag]:
    check_joined(words, source)
    given, rest = read_words(words)
    for word in rest:
        if word.startswith("-"):
            name = word.partition("=")[0]
            raise ConfigError(source, hidden_text(name), f"vllm serve has no such flag{_meant(name)}")
    if len(rest) > 1:
        may_be_secret = any(is_secret_name(word) for word in words if word.startswith("-"))
        said = HIDDEN if may_be_secret else hidden_text(" ".join(rest[1:]))
        unset = next((word for word in rest[1:] if is_unresolved(word)), None)
        if unset is not None and not may_be_secret:
            fix = "is a variable that nothing here sets: write its value, or leave it out"
            raise ConfigError(source, hidden_text(unset), fix)
        raise ConfigError(source, said, f"stands behind the model ({hidden_text(rest[0])}) and belongs to no flag")
    if rest:
        given = merged(given, read_words(["--model", rest[0]]).given)
    return given


def _meant(word: str) -> str:
    close = near_names(word.replace("_", "-"), flag_table().names, n=1)
    return f": did you mean {close[0]}?" if close else ""
