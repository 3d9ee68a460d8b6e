"""Command lines, scripts and systemd units that start vLLM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from tokenyard.deploy.start_facts import AROUND, SEVERAL, HeaderNote, Said, StartFacts
from tokenyard.deploy.texts.data import KNOWN
from tokenyard.deploy.vllm_serve.shell import (
    MOST_CHARACTERS,
    ShellError,
    Word,
    WordPart,
    commands,
    expanded,
    split_words,
)
from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass
from tokenyard.redaction import hidden_beginning

# ---------------------------------------------------------------------------------------------------------------------
# What a text says of how vLLM is started, whatever kind of text it is.


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCommand(StartFacts):
    """How one server is started."""

    words: list[str]
    """What follows ``vllm serve``."""


# ---------------------------------------------------------------------------------------------------------------------
# Images of containers: whether one holds vLLM, and of which version.

_VERSION = re.compile(r"v?(0\.[0-9]{1,4}(?:\.[0-9]{1,4})?)(?!\.?[0-9])")
"""Versions of vLLM begin with 0; other tags (25.11-py3, 3.0) count something else."""
_AMONG_OTHERS = re.compile(r"vllm[_-]v?(0\.[0-9]{1,4}(?:\.[0-9]{1,4})?)(?![0-9.])")
"""Within a tag that counts something else first: ``rocm6.4.1_vllm_0.9.1_20250715``."""
_INSTALLED = re.compile(
    r"(?<![\w.-])vllm(?:\.git)?(?:\[[\w,-]{1,60}\])?[ \t]?"
    r"((?:(?:(?:===?|~=|>=|<=|!=|<|>)[ \t]?v?(?:[0-9][0-9.]{0,12}\*?|\$\w{1,60}|\$\{[^\s{}]{1,90}\})"
    r"|[=@/]v?0\.[0-9][0-9.]{0,12})(?:,[ \t]?)?){1,4})"
)
"""What an installation asks for: ``vllm==0.22.1``, ``vllm>=0.22,<0.23``, ``vllm@v0.22.1``, ``vllm==$VERSION``."""
_BOUND = re.compile(r"(===?|~=|>=|<=|!=|<|>|=|@|/)[ \t]?v?([^,]+)")
_IN_A_PATH = re.compile(r"(?<![\w.])vllm(?:-openai)?[_-]v?(0\.[0-9]{1,4}(?:\.[0-9]{1,4})?)(?![0-9])")
"""Names of wheels, environments and files of images: ``vllm-0.22.1+cu129-...whl``, ``vllm-openai_v0.22.1.sif``."""
_NAME = re.compile(r"vllm(?:-[\w.-]+)?")
_ENTRY = frozenset(("vllm", "vllm-openai"))
_OF_ANOTHER = re.compile(r"(?:^|/)(?:ai-dynamo|dynamo|lmcache|llm-d)/|(?:^|/)(?:vllm-runtime|dynamo[\w.-]*)$")
"""Images around vLLM whose tags count the versions of another project: Dynamo's, LMCache's, llm-d's."""
_BESIDE = ("router", "sidecar", "proxy", "gateway", "exporter", "downloader")
_OTHER_DEVICE = re.compile(
    r"(?<![a-z0-9])(cpu|tpu|rocm|xpu|hpu|gaudi|neuron|npu|ascend|openvino|spyre)(?![a-z])(?=[^@]*(?:@|\Z))"
)
"""Matches another device than a GPU in the name or the tag of an image."""
OTHER = "other"
"""Stands in the place of a version where a tag is another project's."""
_MOST_NAMED = 3
_MOST_READ = 20


def is_vllm_image(image: str) -> bool:
    """Whether an image, of whatever registry, is called ``vllm``, ``vllm-openai`` or ``vllm-...``."""
    name = _image_parts(image)[0]
    parts = name.split("/")
    return _NAME.fullmatch(parts[-1]) is not None or (len(parts) > 1 and parts[-2] in _ENTRY)


def may_hold_vllm(image: str) -> bool:
    """Whether vLLM stands in an image's own name, and nothing that stands beside it: a router, a sidecar."""
    name = _image_parts(image)[0].rsplit("/", 1)[-1].lower()
    return is_vllm_image(image) if "vllm" not in name else not any(each in name for each in _BESIDE)


def device_of_image(image: str) -> Said | None:
    """What an image of vLLM runs on, where that is no GPU of NVIDIA's: ``vllm-cpu-release-repo``."""
    found = _OTHER_DEVICE.search(image.lower()) if "vllm" in image else None
    return None if found is None else Said(found[1], f"the image {_short(image)}")


def version_of_image(image: str) -> Said | None:
    """What the image's tag says; None without a tag, or where the image is not called after vLLM."""
    name, tag = _image_parts(image)
    if not tag or "vllm" not in name:
        return None
    found = None if _OF_ANOTHER.search(name) else _VERSION.match(tag)
    found = found or _AMONG_OTHERS.search(tag)
    if found is None and _OF_ANOTHER.search(name):
        return Said(OTHER, f"the tag of the image {_short(image)}, of a project around vLLM,")
    return Said(found[1] if found else tag, f"the tag of the image {_short(image)}")


def _short(image: str) -> str:
    return image if len(image) <= 100 else f"{image[:100]}..."


def version_installed(text: str) -> Said | None:
    """What a text installs, ``vllm==0.22.1``, or has in a path; None where it names no version at all."""
    asked = dict.fromkeys(each.groups() for each in islice(_INSTALLED.finditer(text), _MOST_READ))
    found = {f"vllm{each[0]}".strip(" \t,"): _newest(each[0], text) for each in asked}
    if not any(found.values()):
        found |= {each[0]: each[1] for each in _IN_A_PATH.finditer(text)}
    versions = dict.fromkeys(version for version in found.values() if version)
    if not found:
        return None
    value = next(iter(versions)) if len(versions) == 1 else SEVERAL if versions else "none"
    return Said(value, f"{', '.join(list(found)[:_MOST_NAMED])} in the text")


def _newest(bounds: str, text: str) -> str | None:
    """The newest version that bounds let in; None where nothing bounds it from above."""
    newest: str | None = None
    for sign, bound in _BOUND.findall(bounds):
        version = _set_in(text, bound.strip("${} \t").partition(":")[0]) if "$" in bound else bound.strip(" \t")
        parts = [int(part) for part in (version or "").rstrip("*").strip(".").split(".") if part]
        if len(parts) < 2 or parts[0] != 0 or (sign == "~=" and len(parts) == 2):
            continue
        if sign == "<" and not any(parts[2:]):
            parts = [0, parts[1] - 1]
        elif sign in ("~=", "<"):
            parts = parts[:2]
        if sign not in (">", ">=", "!=") and parts[1] >= 0:
            newest = ".".join(map(str, parts))
    return newest


def _set_in(text: str, name: str) -> str | None:
    """A version that a variable is set to."""
    found = re.search(rf"(?<!\w){name}(?:=|:[ \t]?|:-)[\"']?v?(0\.[0-9]{{1,4}}(?:\.[0-9]{{1,4}})?)(?![0-9.])", text)
    return None if found is None else found[1]


def _image_parts(image: str) -> tuple[str, str]:
    """Name and tag; a port in front of a slash is none, and a digest says nothing."""
    name = image.partition("@")[0]
    last = name.rpartition("/")[2]
    tag = last.partition(":")[2]
    return name[: len(name) - len(tag) - 1] if tag else name, tag


# ---------------------------------------------------------------------------------------------------------------------
# How many GPUs a command is given.

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
_DEVICES = re.compile(r"[0-9]{1,3}(?:,[0-9]{1,3}){0,63}|GPU-[\w-]{8,60}(?:,GPU-[\w-]{8,60}){0,63}")


def gpus_visible(environment: Mapping[str, str]) -> Said | None:
    """The number of GPUs that variables leave to a process; None where they name none by number."""
    for name in _VISIBLE:
        devices = environment.get(name, "").replace(" ", "")
        if _DEVICES.fullmatch(devices):
            return Said(str(len(set(devices.split(",")))), f"{name}={devices[:100]}")
    return None


# ---------------------------------------------------------------------------------------------------------------------
# A command line or a script that starts vLLM: ``vllm serve``, its modules, or a container of it.

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(?!=)")
_DECLARES = ("export", "exec", "declare", "local", "readonly", "typeset")
_OPENS = ("if", "case", "for", "while", "until", "select")
_CLOSES = ("fi", "esac", "done")
_BEFORE_COMMANDS = (*_OPENS, *_CLOSES, "then", "else", "elif", "do", "{", "}", "!", "time")
_TESTS = ("[", "[[", "test")
_ROUNDS = HeaderNote(
    "for", "a loop", "each round starts another one: one of them gets all the traffic here (--replicas)"
)
_SPEAKS_OF = frozenset(
    ("echo", "printf", "logger", "grep", "egrep", "pgrep", "pkill", "killall", "kill", "ps", "awk", "sed", "which")
)
"""Commands that name others, and do not run them."""
_CLI = "vllm.entrypoints.cli.main"
_DYNAMO = "dynamo.vllm"
"""A worker of Dynamo's, which takes vLLM's flags and some of its own."""
_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.openai.run_server", _DYNAMO)
_OF_DYNAMO: Mapping[str, str] = KNOWN["dynamo"]
"""Flags of its own, and what becomes of them."""
_DYN, _OF_ANY_WORKER = "--dyn-", "how requests are parsed, or where workers meet"
"""What other flags of its own begin with."""
SHELLS = ("sh", "bash", "zsh", "ash", "dash")
_CONTAINERS = ("docker", "podman", "nerdctl", "sudo")
_OF_CLUSTERS = ("apptainer", "singularity")
_PASSED_ON = re.compile(r"(?:APPTAINER|SINGULARITY)ENV_")
_SETS_VARIABLE = ("-e", "--env")
_MOUNTS = ("-v", "--volume")
_FROM_FILE, _ENTRY_POINT = "--env-file", "--entrypoint"
_READ = (*_SETS_VARIABLE, *_MOUNTS, _FROM_FILE, _ENTRY_POINT, "--gpus")
"""Options of ``docker run`` that say something of the engine."""
_SHORT_SWITCHES = "ditP"
_SWITCHES: frozenset[str] = frozenset(KNOWN["switches"])
"""Options of ``docker run`` that no value follows."""
_NOT_READ = "is changed under a condition: that change is not read"
_TAKEN = "is set under a condition: taken, as nothing else sets it"
_FIRST = "is set under several conditions: the first is taken"
_MOST_SHELLS_WITHIN = 3
"""Scripts that a command hands to a shell, within each other."""


class Expander:
    """Variables as a script sets them, one after the other; all that they stand for is bounded together."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.environment = dict(environment or {})
        self.arrays: dict[str, list[str]] = {}
        self.assumed: dict[str, str] = {}
        """Variables of which something else may hold, and why."""
        self._left = MOST_CHARACTERS
        self._used: set[str] = set()

    def words(self, command: Sequence[Word]) -> list[str]:
        """The words of one command, with the variables that are set. Raises ShellError."""
        return [text for word in command for text in self._expanded(word)]

    def assigned(self, command: list[Word], *, may_not_run: bool = False) -> list[Word]:
        """What follows the assignments in front of a command, which are noted.

        One that ``may_not_run`` sets what nothing has set before, and changes nothing else.
        """
        for i, word in enumerate(command):
            found = _ASSIGNMENT.match(word[0].text) if word and not _is_variable(word[0]) else None
            if found is None:
                return command[i:]
            self._assign(found[1], word, found.end(), adds=bool(found[2]), may_not_run=may_not_run)
        return []

    def notes(self) -> tuple[HeaderNote, ...]:
        """Notes about the variables that were used."""
        return tuple(HeaderNote(name, "in the script", why) for name, why in self.assumed.items() if name in self._used)

    def _assign(self, name: str, word: Word, end: int, *, adds: bool, may_not_run: bool) -> None:
        if may_not_run:
            is_set = name in self.environment or name in self.arrays
            is_taken = self.assumed.get(name) in (_TAKEN, _FIRST)
            self.assumed[name] = _FIRST if is_taken else _NOT_READ if is_set or adds else _TAKEN
            if is_set or adds:
                return
        items = word[0].items
        if items is not None:
            words = [text for each in items for text in self._expanded(each)]
            self.arrays[name] = [*(self.arrays.get(name, []) if adds else ()), *words]
            return
        value = [
            WordPart(word[0].text[end:], is_quoted=True),
            *(msgspec.structs.replace(p, is_quoted=True) for p in word[1:]),
        ]
        text = "".join(self._expanded(value))
        before = self.environment.get(name, "") if adds else ""
        self._spend(len(before))
        self.environment[name] = before + text

    def _spend(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise ShellError(f"stands for more than {MOST_CHARACTERS:,} characters, its variables written out")

    def _expanded(self, word: Word) -> list[str]:
        if all(piece.name is None for piece in word):
            return expanded(word, {})
        self._used.update(piece.name for piece in word if piece.name is not None)
        whole = [piece for piece in word if piece.text]
        if len(whole) == 1 and whole[0].is_array and whole[0].name in self.arrays:
            found = self.arrays[str(whole[0].name)]
            self._spend(sum(map(len, found)) + len(found))  # words may be empty
            return list(found)
        words = expanded(word, self.environment, most=self._left)
        self._left -= sum(map(len, words))
        return words


def _is_variable(piece: WordPart) -> bool:
    return piece.name is not None or piece.is_quoted


def script_started(text: str, source: str, environment: Mapping[str, str] | None = None) -> ContainerCommand | None:
    """What the first command in ``text`` that starts vLLM says; None if there is none. Raises ConfigError."""
    try:
        return _script(text, Expander(environment), _MOST_SHELLS_WITHIN)
    except ShellError as error:
        raise ConfigError(source, hidden_beginning(text), str(error)) from None


def words_started(
    words: Sequence[str], source: str, environment: Mapping[str, str] | None = None
) -> ContainerCommand | None:
    """The same of the words of one command, variables written out. Raises ConfigError."""
    try:
        return _command(list(words), Expander(environment), _MOST_SHELLS_WITHIN)
    except ShellError as error:
        raise ConfigError(source, hidden_beginning(" ".join(words)), str(error)) from None


def _script(text: str, expander: Expander, levels: int) -> ContainerCommand | None:
    found: list[ContainerCommand] = []
    opened: list[str] = []
    tested = False
    cut: int | None = None
    for command in commands(text):
        if cut is not None and found:
            found[-1] = replace(found[-1], notes=(*found[-1].notes, _cut_off(cut, command)))
        cut = None
        first = _as_written(command[0])
        if first in _OPENS:
            opened.append(first)
        elif first in _CLOSES and opened:
            opened.pop()
        bare = _bare(command)
        rest = expander.assigned(bare, may_not_run=bool(opened) or tested)
        tested = bool(bare) and _as_written(bare[0]) in _TESTS
        started = _command(expander.words(rest), expander, levels) if rest else None
        if started is None or (found and _as_written(rest[0]).startswith("--")):
            continue
        if not any(started.words == each.words for each in found):
            names = _written_out(rest)
            kept = {name: value for name, value in started.environment.items() if name not in names}
            rounds = (_ROUNDS,) if "for" in opened else ()
            found.append(replace(started, environment=kept, notes=(*expander.notes(), *started.notes, *rounds)))
            cut = command.cut_at
    if len(found) > 1:
        raise ShellError(f"{len(found)} commands start vLLM: paste the one that is meant")
    return found[0] if found else None


def _written_out(command: list[Word]) -> set[str]:
    """Variables that are there for the words of the command alone: it does not pass them on, as ``-e NAME`` would."""
    passed_on = {_as_written(word).partition("=")[0].removeprefix("-e") for word in command}
    return {piece.name for word in command for piece in word if piece.name is not None} - passed_on


def _cut_off(line: int, behind: list[Word]) -> HeaderNote:
    """Notes about the words that stand below the comment that ends a command."""
    flags = [text.partition("=")[0] for text in map(_as_written, behind) if text.startswith("-")]
    what = ", ".join(flags) or "what stands below it"
    return HeaderNote("comment", f"line {line}", f"a shell ends the command there: not read: {what}")


def _bare(command: list[Word]) -> list[Word]:
    """Without what a shell's own grammar puts in front of a command."""
    at = 0
    while at < len(command) and _is_grammar(_as_written(command[at])):
        at += 1
    if at < len(command) and _as_written(command[at]) in _DECLARES:
        at += 1
        while at < len(command) and _as_written(command[at]).startswith("-") and len(command) > at + 1:
            at += 1
    return command[at:]


def _is_grammar(text: str) -> bool:
    is_case = text.endswith(")") and "(" not in text
    return text in _BEFORE_COMMANDS or text.endswith("()") or is_case


def _as_written(word: Word) -> str:
    """A word as it is written."""
    return "".join(piece.text for piece in word)


def _command(words: list[str], expander: Expander, levels: int) -> ContainerCommand | None:
    """What a command starts; None if it is another one."""
    if words and words[0].rsplit("/", 1)[-1] in _SPEAKS_OF:
        return None
    if words and words[0].startswith("--"):
        return ContainerCommand(words=words, environment=expander.environment)
    in_container = _container(words, expander, levels)
    if in_container is not None:
        return in_container
    for i, word in enumerate(words):
        if (word == _CLI or word.rsplit("/", 1)[-1] == "vllm") and words[i + 1 : i + 2] == ["serve"]:
            return _started(words[:i], words[i + 2 :], expander)
        if word == _DYNAMO:
            theirs, notes = _without_dynamo(words[i + 1 :])
            return replace(_started(words[:i], theirs, expander), notes=notes)
        if word in _MODULES:
            return _started(words[:i], words[i + 1 :], expander)
    scripts = [word for word in words if "vllm" in word and len(word.split()) > 1] if levels else []
    for script in scripts:
        _set(words[: words.index(script)], expander)
        found = _script(script, expander, levels - 1)
        if found is not None:
            return found
    return None


def _without_dynamo(words: Sequence[str]) -> tuple[list[str], tuple[HeaderNote, ...]]:
    """vLLM's words, and a note of each flag of Dynamo's own among them."""
    theirs, notes = list[str](), list[HeaderNote]()
    at = 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        why = _OF_DYNAMO.get(name) or (_OF_ANY_WORKER if name.startswith(_DYN) else None)
        at += 1
        if why is None:
            theirs.append(words[at - 1])
            continue
        if not equals and at < len(words) and not words[at].startswith("--"):
            value = words[at]
            at += 1
        notes.append(HeaderNote(f"Dynamo's {name}", value or "set", why))
    return theirs, tuple(notes)


def _started(before: Sequence[str], words: list[str], expander: Expander) -> ContainerCommand:
    """The command with the assignments in front of it, as ``env`` has them, and the image it runs in."""
    _set(before, expander)
    image = next((image for word in before if (image := _image_in(word))), "")
    version, gpu = version_of_image(image), device_of_image(image)
    return ContainerCommand(words=words, environment=expander.environment, version=version, gpu=gpu)


def _image_in(word: str) -> str | None:
    """The image that a word names: ``docker://vllm/vllm-openai:v0.22.1``, ``--container-image=...``."""
    image = word.rpartition("=")[2] if word.startswith("--") else word
    for scheme in ("docker://", "docker:"):
        image = image.removeprefix(scheme)
    return image if ":" in image and "/" in image and is_vllm_image(image) else None


def _set(words: Sequence[str], expander: Expander) -> None:
    for word in words:
        found = _ASSIGNMENT.match(word)
        if found is not None:
            expander.environment[found[1]] = word[found.end() :]


def _container(words: list[str], expander: Expander, levels: int) -> ContainerCommand | None:
    """What ``docker run`` of an image starts: the words behind the image follow its entry point, ``vllm serve``."""
    if any(word.rsplit("/", 1)[-1] in _OF_CLUSTERS for word in words[: len(words) - 1]):
        return _on_a_cluster(words, expander)
    if "run" not in words[:3] or words[0].rsplit("/", 1)[-1] not in _CONTAINERS:
        return None
    at, options = _options(words, words.index("run") + 1)
    if at == len(words):
        return None
    set_to = [value.partition("=") for name, value in options if name in _SETS_VARIABLE and "=" in value]
    environment = {**expander.environment, **{name: value for name, _, value in set_to}}
    entry = [value for name, value in options if name == _ENTRY_POINT][-1:]
    image, behind = words[at], [*filter(None, entry), *words[at + 1 :]]
    inner = Expander(environment)
    is_shell = bool(behind) and behind[0].rsplit("/", 1)[-1] in SHELLS
    found = _command(behind, inner, levels - 1) if levels and behind and not behind[0].startswith("--") else None
    if found is None and is_vllm_image(image) and not is_shell:
        found = ContainerCommand(words=behind, environment=environment)
    if found is None:
        return None
    version, gpu = found.version or version_of_image(image), found.gpu or device_of_image(image)
    found = with_mounts(found, [value for name, value in options if name in _MOUNTS])
    return replace(
        found,
        version=version,
        gpu=gpu,
        gpus=_gpus_of_docker(words[:at]),
        notes=(*_said_by(options), *found.notes),
        passed_over=(*_around_in(options), *found.passed_over),
    )


def with_mounts(started: ContainerCommand, mounts: Sequence[str]) -> ContainerCommand:
    """The command whose model, a path in the container, is the path on the host that ``HOST:PATH`` mounts there."""
    words = list(started.words)
    at = next((i + 1 for i, word in enumerate(words) if word == "--model"), 0)
    if at >= len(words) or not words[at].startswith("/"):
        return started
    for mount in mounts:
        host, _, rest = mount.partition(":")
        target = rest.partition(":")[0].rstrip("/")
        below = words[at].removeprefix(target)
        if target and "/" in host and words[at] != below and below[:1] in ("", "/"):
            note = HeaderNote("volume", mount, f"the model, {words[at]} in the container, is {host}{below}")
            words[at] = f"{host}{below}"
            return replace(started, words=words, notes=(*started.notes, note))
    return started


def _gpus_of_docker(words: Sequence[str]) -> Said | None:
    """The number that ``--gpus`` of ``docker run`` gives: ``2``, ``device=0,1``; None for all."""
    for i, word in enumerate(words):
        if word == "--gpus" or word.startswith("--gpus="):
            value = word.partition("=")[2] if "=" in word else "".join(words[i + 1 : i + 2])
            said = value.strip("\"'").removeprefix("device=")
            if said.isdecimal() and said == value:
                return Said(said, f"--gpus {value}")
            if _DEVICES.fullmatch(said):
                return Said(str(len(said.split(","))), f"--gpus {value[:100]}")
    return None


def _on_a_cluster(words: list[str], expander: Expander) -> ContainerCommand | None:
    """What ``apptainer run IMAGE`` starts; what ``exec`` does stands behind the image, as a command of its own."""
    for name, value in list(expander.environment.items()):
        passed_on = _PASSED_ON.match(name)
        if passed_on is not None:
            expander.environment.setdefault(name[passed_on.end() :], value)
    at = next((i for i, word in enumerate(words) if word.endswith(".sif") or _image_in(word)), None)
    if at is None or "run" not in words[:at] or words[at + 1 : at + 2] == ["vllm"] or "vllm" not in words[at]:
        return None
    return _started(words[: at + 1], words[at + 1 :], expander)


def _options(words: Sequence[str], at: int) -> tuple[int, list[tuple[str, str]]]:
    """Where the image stands, behind the options of ``docker run``, and these with their values."""
    found: list[tuple[str, str]] = []
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        if not name.startswith("--") and len(name) > 2 and not name.lstrip("-").strip(_SHORT_SWITCHES):
            equals = "-"  # several switches in one word: -itd
        elif not name.startswith("--") and len(name) > 2:
            name, value, equals = words[at][:2], words[at][2:], "-"  # the value in the same word: -eNAME=VALUE
        elif not equals and name not in _SWITCHES:
            at += 1
            value = words[at] if at < len(words) else ""
        at += 1
        found.append((name, value))
    return min(at, len(words)), found


def _said_by(options: Sequence[tuple[str, str]]) -> Iterator[HeaderNote]:
    """Notes about options of ``docker run`` that are not read."""
    yield from (
        HeaderNote(name, value, "variables in it are not read") for name, value in options if name == _FROM_FILE
    )


def _around_in(options: Sequence[tuple[str, str]]) -> tuple[HeaderNote, ...]:
    """The note that names the options that are not about the engine."""
    others = [f"{name} {value}".strip() for name, value in options if name not in _READ]
    return (HeaderNote(AROUND, hidden_beginning(", ".join(others)), "is not about the engine"),) if others else ()


# ---------------------------------------------------------------------------------------------------------------------
# Units of systemd: ``ExecStart=`` (in Podman's, ``Image=`` and ``Exec=``) and the variables that the unit sets.
# Programs of supervisord: ``command=`` and ``environment=A="b",C="d"``.

_SECTION = re.compile(r"^[ \t]*\[(?:Service|Container|program:[^\]\n]{1,100})\][ \t\r]*$", re.MULTILINE)
_EXEC = re.compile(r"^[ \t]*(?:ExecStart|Exec|command)[ \t]*=", re.MULTILINE)
_SUPERVISED = re.compile(r"([A-Za-z_]\w{0,200})=(\"[^\"]*\"|'[^']*'|[^,]*)")
_PREFIXES = "@-:+!|"


def is_unit(text: str) -> bool:
    """Whether a text is a unit that runs something."""
    return _SECTION.search(text) is not None and _EXEC.search(text) is not None


def unit_started(text: str) -> list[ContainerCommand]:
    """What the unit starts, if that is vLLM. Raises ConfigError."""
    environment: dict[str, str] = {}
    notes: list[HeaderNote] = []
    commands: list[str] = []
    image = in_container = ""
    for line in _joined(text):
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if not equals:
            continue
        if name == "Environment":
            environment.update(_assignments(value) if value else {})
        elif name == "environment":
            environment.update((each[1], each[2].strip("\"'")) for each in _SUPERVISED.finditer(value))
        elif name == "EnvironmentFile":
            notes.append(HeaderNote(name, value, "variables in it are not read"))
        elif name == "Image":
            image = value
        elif name == "Exec":
            in_container = value
        elif name in ("ExecStart", "command"):
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
