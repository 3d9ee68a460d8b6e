"""Change settings in the text that starts vLLM, whichever kind it is: a line, a script, a manifest, values of a chart.

Nothing is written anew: the flag's value is replaced where it stands, or the flag is put behind another one, in the way
that one is written. Every place that may be meant is tried, and the first whose text, read back, starts the deployment
that is wanted is taken. So comments, order and all else stay, and a change that cannot be made this way is refused.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from typing import Any

from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.setting_values import value_of
from tokenyard.deploy.vllm_serve.flags import VLLMFlag, flag_table, flag_words
from tokenyard.errors import ConfigError, TokenyardError

_MOST_TRIED = 200
_VALUE = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s"'\\,\]#]+)"""
"""A value as it stands in a text: quoted, or a word."""
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*")
_FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][\w.-]*")


def changed_text(text: str, changes: Mapping[str, Any], *, given: Deployment | None = None) -> str:
    """Return ``text`` with these settings, by name; None takes one back.

    ``given``: what the text starts, where that is known. Raises ConfigError for a setting that has no place in it.
    """
    known = Deployment(text) if given is None else given
    for name, value in changes.items():
        known = known.with_(**{name: value})
        text = _with(text, name, value, known)
    return text


def patch(name: str, before: str, after: str, why: Sequence[str] = ()) -> str:
    """Return a unified diff of a file, with sentences in front that say why; ``patch`` and ``git apply`` skip these."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join([*(f"# {each}\n" for each in why), *(_whole(each) for each in lines)])


def _whole(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _with(text: str, name: str, value: Any, wanted: Deployment) -> str:
    """The text with one setting changed."""
    expected = _meaning(wanted)
    for candidate in islice(_candidates(text, name, value), _MOST_TRIED):
        for also in (*_with_gpus(candidate, name, wanted), candidate):
            try:
                if _meaning(Deployment(also)) == expected:
                    return also
            except TokenyardError:
                continue
    raise ConfigError(name, value, "has no place in this text that reads back as wanted: change it by hand")


def _meaning(deployment: Deployment) -> Any:
    """What two texts have in common that start the same: flags and their values, and what stands around them."""
    written = json.loads(deployment.to_json())
    flags = {flag: value for flag, value, _ in written["given"]}
    around = {name: value for name, value in written["settings"].items() if name.replace("_", "-") not in flags}
    for each in ("serve", "config"):
        around.pop(each, None)
    return flags, around, written["environment"]


_ASKED_GPUS = re.compile(r"""(?P<head>(?:nvidia\.com/gpu|requestGPU)["']?:[ \t]*)(?P<value>["']?[0-9]{1,3}["']?)""")
_OF_SIZE = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def _with_gpus(text: str, name: str, wanted: Deployment) -> Iterator[str]:
    """The text, asking for as many GPUs as the engine has then."""
    if name in _OF_SIZE and _ASKED_GPUS.search(text):
        size = prod(value_of(wanted.settings, each) for each in _OF_SIZE)
        yield _ASKED_GPUS.sub(lambda found: found["head"] + _like(found["value"], str(size)), text)


# ---------------------------------------------------------------------------------------------------------------------
# Where a setting may stand, and how.


def _candidates(text: str, name: str, value: Any) -> Iterator[str]:
    """The text, changed at each place that may be meant, the likeliest first."""
    flag = _flag_of(name)
    yield text
    if flag is not None:
        yield from _replaced(text, flag, value)
    yield from _keys(text, name, value)
    is_there = flag is not None and re.search(rf"(?<![\w-])(?:{_spellings(flag)})(?![\w-])", _COMMENT.sub("", text))
    if flag is not None and value is not None and not is_there:
        yield from _inserted(text, flag_words(flag.flag, value))


def _flag_of(name: str) -> VLLMFlag | None:
    try:
        return flag_table()[name.replace("_", "-")]
    except KeyError:
        return None


def _spellings(flag: VLLMFlag) -> str:
    names = [flag.flag, f"--{flag.field}", *flag.other_names, *flag.off_names]
    return "|".join(re.escape(each) for each in sorted(set(names), key=len, reverse=True))


def _replaced(text: str, flag: VLLMFlag, value: Any) -> Iterator[str]:
    """A flag that is there, with another value, or gone."""
    words = [] if value is None else flag_words(flag.flag, value)
    written = rf"(?P<name>(?<![\w-])(?:{_spellings(flag)}))"
    gap = r"""=|[ \t]+|["']?,?[ \t]*(?:\\[ \t]*)?(?:#[^\n]*)?\n?[ \t]*(?:-[ \t]+)?"""
    behind = rf"""(?P<gap>{gap})(?P<value>(?!["']?--){_VALUE})"""
    in_list = rf"""(?:,[ \t]*)?["'](?:{_spellings(flag)})["'](?:[ \t]*,[ \t]*["'](?!--)[^"'\n]*["'])?"""
    for found in reversed(list(re.finditer(written + behind, text))):
        if len(words) == 2:
            new = found["name"] + found["gap"] + _like(found["value"], words[1])
            yield text[: found.start()] + new + text[found.end() :]
        yield _without(text, found.start(), found.end())
    for found in reversed(list(re.finditer(in_list, text))) if value is None else ():
        yield text[: found.start()] + text[found.end() :]
    for found in reversed(list(re.finditer(rf"{written}(?![\w=-])", text))):
        if len(words) == 1:
            yield text[: found.start()] + words[0] + text[found.end() :]
        yield _without(text, found.start(), found.end())


def _like(old: str, new: str) -> str:
    """A value, quoted as the one whose place it takes."""
    if old[:1] in "\"'" and len(old) > 1:
        return f"{old[0]}{new}{old[0]}"
    return new


def _without(text: str, start: int, end: int) -> str:
    """The text without a stretch, and without the lines that hold nothing else."""
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    last = len(text) if last < 0 else last
    left, right = text[first:start], text[end:last]
    if left.strip(" \t-\"'") == "" and right.strip(" \t\\\"',") == "":
        return text[:first] + text[last + 1 :]
    return text[:start].rstrip(" \t") + (" " if right.strip() else "") + text[end:].lstrip(" \t")


_CHARTS = {"replicas": ("replicaCount",)}
"""What charts call a setting."""


def _keys(text: str, name: str, value: Any) -> Iterator[str]:
    """A key of YAML, or a variable, that is called as the setting is: ``maxNumSeqs: 64``, ``MAX_NUM_SEQS=64``."""
    parts = name.split("_")
    camel = parts[0] + "".join(each.capitalize() for each in parts[1:])
    names = "|".join(
        map(re.escape, dict.fromkeys((*_CHARTS.get(name, ()), camel, name, name.replace("_", "-"), name.upper())))
    )
    head = rf"""[ \t]*(?:-[ \t]+)?(?:export[ \t]+)?["']?(?:{names})["']?[ \t]*[:=][ \t]*"""
    pattern = rf"(?m)^(?P<head>{head})(?P<value>{_VALUE})"
    new = "null" if value is None else json.dumps(value) if isinstance(value, bool) else str(value)
    for found in re.finditer(pattern, text):
        yield text[: found.start()] + found["head"] + _like(found["value"], new) + text[found.end() :]


def _inserted(text: str, words: Sequence[str]) -> Iterator[str]:
    """A flag that is not there, behind each flag that is, as that one is written; or behind the model."""
    for found in reversed(list(_FLAG.finditer(text))):
        yield from _behind(text, found, words)
    for found in re.finditer(rf"vllm[ \t]+serve[ \t]+{_VALUE}", text):
        yield f"{text[: found.end()]} {_shell(words)}{text[found.end() :]}"
    for found in re.finditer(
        r"(?m)^(?P<head>[ \t]*)(?:args|command|extraArgs|vllmArgs):[ \t]*\n(?P<item>[ \t]*-)[ \t]", text
    ):
        yield text[: found.start("item")] + _items(found["item"] + " ", words, "") + text[found.start("item") :]


def _behind(text: str, found: re.Match[str], words: Sequence[str]) -> Iterator[str]:
    """Behind one flag and its value: as items of a list, as a line that goes on, or in the same line."""
    first = text.rfind("\n", 0, found.start()) + 1
    last = text.find("\n", found.end())
    last = len(text) if last < 0 else last
    line = text[first:last]
    item = re.match(r"""(?P<head>[ \t]*-[ \t]+)(?P<quote>["']?)-""", line)
    if item is not None:  # its value is in this line, or is the next item
        after = re.compile(rf"[ \t]*-[ \t]+{_VALUE}[ \t]*(?:#[^\n]*)?(?:\n|$)").match(text, last + 1)
        ends = [last + 1] + (
            [after.end()] if after is not None and not text[last + 1 :].lstrip(" -\"'").startswith("-") else []
        )
        for end in reversed(ends):
            joined = ["=".join(words)] if "=" in line and len(words) > 1 else list(words)
            lead = text[:end] if text[:end].endswith("\n") else text[:end] + "\n"
            yield lead + _items(item["head"], joined, item["quote"]) + text[end:]
    quoted = re.compile(r"""["'](?:[ \t]*,[ \t]*["'](?!-)[^"'\n]*["'])?""").match(text, found.end())
    if quoted is not None:  # a list within one line
        mark = text[quoted.start()]
        yield text[: quoted.end()] + "".join(f", {mark}{each}{mark}" for each in words) + text[quoted.end() :]
    if line.rstrip().endswith("\\"):
        indent = line[: len(line) - len(line.lstrip())]
        yield f"{text[: last + 1]}{indent}{_shell(words)} \\\n{text[last + 1 :]}"
    value = re.compile(rf"(?:=|[ \t]+)(?!-){_VALUE}").match(text, found.end())
    for end in ([value.end()] if value is not None else []) + [found.end()]:
        yield f"{text[:end]} {_shell(words)}{text[end:]}"


def _items(head: str, words: Sequence[str], quote: str) -> str:
    """Words as items of a list of YAML; numbers are quoted, since arguments are texts."""
    marks = [quote or ('"' if not each.startswith("-") else "") for each in words]
    return "".join(f"{head}{mark}{each}{mark}\n" for mark, each in zip(marks, words, strict=True))


def _shell(words: Sequence[str]) -> str:
    return " ".join(f"'{each}'" if re.search(r"[\s\"{}\[\]]", each) else each for each in words)
