"""vLLM's own log of its start: arguments, version, GPU, what it settled, and how much memory was left for KV.

Lines as vLLM 0.22 and 0.33 write them, with whatever stands in front of them (process, level, time, colours).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tokenyard.deploy.start_facts import NO_GPU, HeaderNote, MeasuredKV, Said
from tokenyard.deploy.texts.commands import ContainerCommand
from tokenyard.deploy.texts.data import KNOWN, ReprError, read_repr
from tokenyard.deploy.texts.manifests import gpu_named
from tokenyard.deploy.vllm_serve.defaults import KNOWN_VERSIONS
from tokenyard.deploy.vllm_serve.flags import flag_table, flag_words
from tokenyard.units import GIB

_ARGUMENTS = "non-default args: {"
_ENGINE = re.compile(r"Initializing a V1 LLM engine \(v([\w.+-]{1,60})\) with config: ")
_VERSION = re.compile(
    r"(?:vLLM (?:API )?server version |█[ \t]{1,9}version[ \t]{1,9})v?([0-9][\w.+-]{0,60})"
    r"|Initializing a V1 LLM engine \(v([\w.+-]{1,60})\)"
)
_MEMORY = re.compile(r"Available KV cache memory: (-?[0-9]{1,9}(?:\.[0-9]{1,6})?) GiB")
_SIZE = re.compile(r"KV cache size: ([0-9]{1,3}(?:,[0-9]{3}){0,6}|[0-9]{1,15}) tokens")
_LENGTH = re.compile(r"Maximum concurrency for ([0-9,]{1,20}) tokens per request")
_CONCURRENCY = re.compile(_LENGTH.pattern + r": ([0-9]{1,9}(?:\.[0-9]{1,9})?)x")
_OLDEST_BY_REQUESTS = tuple(map(int, KNOWN_VERSIONS[0].split(".")))
"""Older versions than any that is known count blocks."""
_BUDGET = re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=([0-9]{1,12})")
_ASYNC = re.compile(r"Asynchronous scheduling is (enabled|disabled)")
_MAX_LEN = re.compile(r"(?:Using max model len |\bmax_seq_len=)([0-9]{1,12})")
_DEVICE = re.compile(r"\bdevice_name=([\w. -]{1,100}?)(?:,|\.json)|\bGPU [0-9]{1,3}: (NVIDIA [\w .-]{1,80})")
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_ENGINE_FIELD = re.compile(r"\b(\w{1,60})=('[^']{0,500}'|[\w./-]{1,200})(?=,|\s|$)")
_IN_ENGINE: Mapping[str, str] = KNOWN["engine_fields"]
"""Fields of the engine's line, and their flags; it stands in for the arguments where these were cut off."""
_NO_FLAGS = ("model_tag", "config", "subparser", "headless")
_AS_WITHOUT: Mapping[str, Mapping[str, Any]] = KNOWN["as_without"]
"""Fields that an object in a log has though no flag set them; ``*`` stands for any value."""


def is_startup_log(text: str) -> bool:
    """Whether a text holds lines that vLLM logs as it starts."""
    return (
        _ARGUMENTS in text
        or _ENGINE.search(text) is not None
        or _MEMORY.search(text) is not None
        or _SIZE.search(text) is not None
    )


def log_started(text: str) -> list[ContainerCommand]:
    """What the last start in a log says; none if it names no arguments and no engine."""
    text = _COLOUR.sub("", text)
    begin, starts = _last_start(text)
    start = text[begin:]
    given = _logged_arguments(start)
    notes = [HeaderNote("start-up log", f"{starts} starts", "the last one is read")] if starts > 1 else []
    if given is None:
        engine = _ENGINE.search(start)
        if engine is None:
            return []
        given = dict(_of_engine(start[engine.end() :].partition("\n")[0]))
        why = "it has no line of `non-default args` that can be read: flags are those of the engine's line"
        notes.append(HeaderNote("start-up log", "engine", why))
    words, unread = _words_and_left_out(given)
    notes += [HeaderNote(name, "in the log", "is no flag that is known here, and is not read") for name in unread]
    gpu = _gpu(start)
    if gpu is None:
        notes.append(NO_GPU)
    versions = list(_VERSION.finditer(text))
    version = None
    if versions:
        version = Said((versions[-1][1] or versions[-1][2]).partition("+")[0], "the start-up log")
    concurrency = min((float(each[2]) for each in _CONCURRENCY.finditer(start)), default=None)
    kv = MeasuredKV(
        _memory(start), _least(_SIZE, start), _first(_LENGTH, start), concurrency, by_blocks=_counts_blocks(version)
    )
    return [
        ContainerCommand(
            words=words, version=version, gpu=gpu, resolved=_resolved(start, given), kv=kv, notes=tuple(notes)
        )
    ]


def _last_start(text: str) -> tuple[int, int]:
    """Where the last start begins, and how many there are; front ends of one start log equal arguments."""
    found = [each.start() for each in re.finditer(re.escape(_ARGUMENTS), text)]
    if not found:
        found = [each.start() for each in _ENGINE.finditer(text)][:1]
        return (found[0] if found else 0), 1
    starts: list[int] = []
    last = ""
    for at in found:
        end = text.find("\n", at)
        line = text[at : len(text) if end < 0 else end]
        if line != last:
            starts.append(at)
        last = line
    return starts[-1], len(starts)


def _logged_arguments(start: str) -> dict[str, Any] | None:
    """The arguments; None where they are not logged."""
    at = start.find(_ARGUMENTS)
    if at < 0:
        return None
    try:
        given = read_repr(start, at + len(_ARGUMENTS) - 1)
    except ReprError:
        return None
    return {str(name): value for name, value in given.items()} if isinstance(given, dict) else None


def _of_engine(line: str) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for found in _ENGINE_FIELD.finditer(line[:4000]):
        name = _IN_ENGINE.get(found[1])
        if name is None or name in seen:
            continue
        seen.add(name)
        value = found[2].strip("'").removeprefix("torch.")
        if value in ("True", "False"):
            yield name, value == "True"
        elif value not in ("None", "auto"):
            yield name, value


def _words_and_left_out(given: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The words that say the same, and names that no flag has."""
    words: list[str] = []
    unread: list[str] = []
    for name, value in given.items():
        if name in _NO_FLAGS:
            continue
        flag = "--" + name.replace("_", "-")
        if flag_table().named(flag, prefixes=False) is None:
            unread.append(name)
        else:
            words += flag_words(flag, _set_by_somebody(name, value))
    if "model" not in given and isinstance(given.get("model_tag"), str):
        words += ["--model", given["model_tag"]]
    return words, unread


def _set_by_somebody(name: str, value: Any) -> Any:
    """An object's fields without those that it has anyway."""
    usual = _AS_WITHOUT.get(name)
    if usual is None or not isinstance(value, dict):
        return value
    return {
        field: each
        for field, each in value.items()
        if each not in (None, "", [], {}, False, 0) and usual.get(field, None) not in (each, "*")
    }


def _resolved(start: str, given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, pattern in (("max_model_len", _MAX_LEN), ("max_num_batched_tokens", _BUDGET)):
        number = _first(pattern, start)
        if number:
            found[name] = number
    said = _ASYNC.search(start)
    if said is not None:
        found["async_scheduling"] = said[1] == "enabled"
    return {name: value for name, value in found.items() if name not in given or given[name] in (None, -1)}


def _counts_blocks(version: Said | None) -> bool:
    found = None if version is None else re.match(r"([0-9]{1,4})\.([0-9]{1,4})", version.value)
    return found is not None and (int(found[1]), int(found[2])) < _OLDEST_BY_REQUESTS


def _numbers(pattern: re.Pattern[str], text: str) -> Iterable[int]:
    return (int(found[1].replace(",", "")) for found in pattern.finditer(text) if found[1].replace(",", ""))


def _first(pattern: re.Pattern[str], text: str) -> int | None:
    return next(iter(_numbers(pattern, text)), None)


def _least(pattern: re.Pattern[str], text: str) -> int | None:
    return min(_numbers(pattern, text), default=None)


def _memory(text: str) -> int | None:
    found = [float(each[1]) for each in _MEMORY.finditer(text)]
    return int(min(found) * GIB) if found and min(found) > 0 else None


def _gpu(start: str) -> Said | None:
    found = _DEVICE.search(start)
    if found is None:
        return None
    name = (found[1] or found[2]).replace("_", " ").strip()
    return Said(gpu_named(name) or name, f"{name} in the start-up log")
