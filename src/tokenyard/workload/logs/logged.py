"""One request as a log records it, and one record looked up by the names that services use."""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from tokenyard.core.config import require_int
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.files import packaged
from tokenyard.quick_dataclass import dataclass
from tokenyard.redaction import hidden_users
from tokenyard.workload.logs.moments import LONGEST, Clock, TimeUnit, without_unit
from tokenyard.workload.measured import Measured
from tokenyard.workload.record import Remark, remark

# ---------------------------------------------------------------------------------------------------------------------
# Sessions of a log that counts no hits: which request goes on where another one ended.

# A client sends the whole conversation again with every turn. So the prompt of a turn begins with the prompt before
# and, unless the answer was rewritten (thoughts are left out), with its answer. Lengths show it:
#
#     turn 1   prompt 1,000  answer 200
#     turn 2   prompt 1,350  answer  80     at least 1,200: begins with all of turn 1
#     turn 3   prompt 1,400  answer  90     less than 1,430, more than 1,350: begins with turn 2's prompt
#     turn 4   prompt   600  answer  50     shorter: begins anew (it was summarised)
#
# Each request goes on at most one other, and one at most goes on it: sub-agents of one session stay apart by their
# lengths. It is believed only if most turns are longer than the one just before: of unrelated prompts half are.

MOSTLY = 0.75
"""Share of later turns that have to be longer."""
_MOST_OPEN = 16
"""Ends of a session that a turn may go on: the latest."""
_ROUNDED = 1.0
"""Seconds by which a turn may begin before the one that it goes on has ended: logs round times."""


class LoggedTurn(msgspec.Struct, frozen=True):
    """One request within a conversation."""

    first: int
    """Number of the request that began the conversation: its own, if it goes on none."""
    is_kept: bool = True
    """Whether the turn that goes on holds this one's answer as it was."""
    before: int | None = None
    """Number of the request that it goes on."""
    pause: float = 0.0
    """Seconds from that one's end to its arrival."""


class _End(msgspec.Struct, frozen=True):
    number: int
    prompt_tokens: int
    total: int
    at: float
    """When it ended, or at least began; seconds."""


def turns_of(arrivals: Sequence[tuple[float, LoggedRequest]]) -> tuple[list[LoggedTurn], list[Remark]]:
    """A turn per request, and what was assumed; no turns if sessions say nothing of what prompts share."""
    turns = [LoggedTurn(i) for i in range(len(arrivals))]
    open_ends: dict[tuple[str | None, str], deque[_End]] = {}
    later = longer = gone_on = 0
    for i, (moment, logged) in enumerate(arrivals):
        if logged.session is None:
            continue
        ends = open_ends.setdefault((logged.user, logged.session), deque(maxlen=_MOST_OPEN))
        if ends:
            later += 1
            longer += logged.prompt_tokens > ends[-1].prompt_tokens
        before = _gone_on(ends, moment, logged.prompt_tokens)
        if before is not None:
            ends.remove(before)
            pause = max(moment - before.at, 0.0)
            turns[i] = LoggedTurn(turns[before.number].first, before=before.number, pause=pause)
            if logged.prompt_tokens < before.total:
                turns[before.number] = msgspec.structs.replace(turns[before.number], is_kept=False)
            gone_on += 1
        total = logged.prompt_tokens + max(1, logged.output_tokens)
        ends.append(_End(i, logged.prompt_tokens, total, moment + (logged.duration or 0.0)))
    if not later:
        return [], []
    if longer < MOSTLY * later:
        return [], [remark("no_turns", longer=longer, later=later)]
    return turns, [remark("turns", gone_on=gone_on, later=later)]


def _gone_on(ends: deque[_End], moment: float, prompt_tokens: int) -> _End | None:
    """The longest that this prompt can hold with its answer, else without it; None: it begins anew."""
    fitting = [end for end in ends if end.at <= moment + _ROUNDED and end.prompt_tokens <= prompt_tokens]
    whole = [end for end in fitting if end.total <= prompt_tokens]
    return max(whole or fitting, key=_length, default=None)


def _length(end: _End) -> tuple[int, int]:
    return end.prompt_tokens, end.number


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# What services call the fields of a request: the names that are known by default, and kinds of logs.

KNOWN: Mapping[str, Any] = tomllib.loads(packaged("tokenyard.workload.logs", "names.toml").decode())
"""What ``names.toml`` says."""


def _names_of(field: str) -> tuple[str, ...]:
    counts = (
        f"{usage}.{name}" for names in KNOWN["in_usage"].get(field, ()) for usage in KNOWN["usages"] for name in names
    )
    return *counts, *KNOWN["names"][field]


KNOWN_NAMES: Mapping[str, Sequence[str]] = {field: _names_of(field) for field in KNOWN["names"]}
"""Our field -> what services call it, dotted where it is nested; the first one that is there counts."""

_OTHER = re.compile(r"[^a-z0-9]+")
_ZONE = re.compile(r"\s*[\[(](?:UTC|GMT)[\])]$", re.IGNORECASE)
"""Behind a name of times: TimeGenerated [UTC]."""


class FieldPath(msgspec.Struct, frozen=True):
    """A name of a field."""

    text: str
    """The name as it is listed."""
    flat: str
    """All of it as one name: a dotted key, or a column of a table that was made of nested records."""
    parts: tuple[str, ...]
    """The keys on the way to it."""


@lru_cache(maxsize=4096)
def normal(name: str) -> str:
    """A name without what spellings differ in."""
    return _OTHER.sub("", name.casefold())


@lru_cache(maxsize=4096)
def normals(name: str) -> tuple[str, ...]:
    """The names that a key may be known by: itself, and itself without a unit."""
    if len(name) > LONGEST:
        return (normal(name),)
    bare = _ZONE.sub("", name) if _ZONE.search(name) else without_unit(name)
    return (normal(name),) if bare is None or not normal(bare) else (normal(name), normal(bare))


@lru_cache(maxsize=4096)
def path_of(name: str) -> FieldPath:
    """The name as keys one within the other."""
    return FieldPath(name, normal(name), tuple(map(normal, name.split("."))))


# ---------------------------------------------------------------------------------------------------------------------
# One request as a log records it, how a log is to be read, and what came of it.


class Stamp(StrEnum):
    """Which moment of a request a log's time is."""

    ARRIVAL = "arrival"
    COMPLETION = "completion"


class Prefixes(StrEnum):
    """Which prompts of a log begin alike."""

    SESSIONS = "sessions"
    """Hits as the log counts them; if it counts none, turns of a session begin with the turn before, if they grow."""
    RECORDED = "recorded"
    """Hits as the log counts them."""


class LoggedRequest(msgspec.Struct, frozen=True):
    """What a log says of one request."""

    moment: float | None
    """Seconds on the log's own clock; None: the log has no times."""
    prompt_tokens: int
    """Tokens, at least 1."""
    output_tokens: int
    """Tokens; 0 counts as 1."""
    cached_tokens: int | None = None
    """Prompt tokens that the service's prefix cache held, by its own count; None: it counts none."""
    duration: float | None = None
    """Seconds from arrival to completion; None: not in the log."""
    request_id: str | None = None
    group: str | None = None
    """Group of requests whose prompts begin alike; None: those of the session, or the user, or all."""
    lora_name: str | None = None
    """LoRA adapter that was requested; None: not in the log, so the base model."""
    says_unit: bool = False
    """Whether the unit of its time is known: the name of the column says it."""
    session: str | None = None
    tool: str | None = None
    """What its answer calls; "": none, None: the log does not say."""
    user: str | None = None
    """User or tenant."""
    priority: int = 0
    model: str | None = None
    """What the model is called that was asked; None: not in the log."""
    total_tokens: int | None = None
    """Prompt and output, if the log counts them too."""
    span: str | None = None
    """Names it among the spans of a trace."""
    tier: str | None = None
    """Which kind of traffic it is: interactive, batch; None: not in the log."""
    reasoning_tokens: int = 0
    """Tokens of reasoning, most often counted as output too."""
    ttft: float | None = None
    """Seconds from arrival to the first token; None: not in the log."""
    error: str | None = None
    """Status of the error with which it ended, though the service had worked on it: how long it took is not the
    service's time. None: it was served."""
    file: Path | None = None
    """The log that it stands in; None: a kind of log that records no errors."""
    place: int = 0
    """Its number among the requests of that file, from 1."""

    @property
    def measured(self) -> Measured | None:
        """What the log has measured of it; None: nothing."""
        of_times = (None, None) if self.error is not None else (self.ttft, self.duration)
        found = Measured(*of_times, self.cached_tokens)
        return None if found == Measured() else found


_FIELDS: Sequence[str] = KNOWN["mappable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How to read a log. Raises ConfigError naming the option."""

    columns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Our field -> the log's column (or dotted key), where the names are not known."""
    time_unit: TimeUnit | None = None
    """Unit of times that are numbers; None: by the column's name or their size (Unix time), else seconds."""
    stamped: Stamp = Stamp.ARRIVAL
    """What the log's times are."""
    prefixes: Prefixes = Prefixes.SESSIONS
    """What prompts share."""
    turns_follow: bool = False
    """Turns that go on others arrive as long after the answer before as they did, and not when they did."""
    max_bad_lines: int = 100
    """Lines that may be unreadable before the reading stops."""
    model_name: str | None = None
    """Only requests of the model of this name (``*`` and ``?`` as in file names); None: the log has one model."""

    def __post_init__(self) -> None:
        require_int("max_bad_lines", self.max_bad_lines, 0)
        for name in self.columns:
            if name not in _FIELDS:
                raise ConfigError("columns", name, f"map one of: {', '.join(_FIELDS)}")


def columns_from(text: str) -> dict[str, str]:
    """``"arrival_time=ts,prompt_len=in"`` -> field to column; ConfigError if it is not of that form."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(name.strip() and column.strip() for name, _, column in pairs):
        raise ConfigError("columns", text, "give FIELD=COLUMN pairs with commas between them: prompt_len=tokens_in")
    return {name.strip(): column.strip() for name, _, column in pairs}


class SentAs(msgspec.Struct, frozen=True):
    """How a benchmark says that it sent its requests, and how fast they were served."""

    request_rate: float | None = None
    """Requests a second, where it says no moments; infinity: all at once."""
    burstiness: float = 1.0
    max_concurrency: int | None = None
    served_per_s: float | None = None


class LoggedError(msgspec.Struct, frozen=True):
    """A request that was answered with an error, and is not replayed."""

    status: str
    place: int
    """Requests of the file that stand before it."""


class LogReading:
    """The reading of one file: its clock, what it took from where, what it left out and what it could not read."""

    def __init__(self, path: Path, options: LogOptions, *, day_first: bool = False) -> None:
        self.path = path
        self.options = options
        self.clock = Clock(options.time_unit, day_first=day_first)
        self.taken: dict[str, Counter[str]] = {}
        """Our field -> what the log calls it, and in how many requests."""
        self.left_out: Counter[str] = Counter()
        """Why requests were left out, and how many."""
        self.requests = 0
        """Requests that were read so far."""
        self.not_served: list[LoggedError] = []
        """Requests that count tokens and were answered with an error; they are left out."""
        self.load = SentAs()
        self.with_choices = 0
        """Requests that asked for several answers."""
        self.of_reasoning = ("", "")
        """What the log calls output tokens and those of reasoning, where it has both."""
        self.ignored = 0
        """Records that are about no request."""
        self.why_sums: str | None = None
        """Why a record is the sum of several requests; None if no record is."""
        self.parents: dict[str, str] = {}
        """Span -> the span around it."""
        self.rounded: str | None = None
        """Why times cannot be used; None if they can."""
        self.remarks: list[Remark] = []
        self._first = (0, "")
        self.bad_lines = 0

    def note(self, name: str, /, **of: Any) -> None:
        """Add the remark of this name, unless it was added before."""
        found = remark(name, **of)
        if found not in self.remarks:
            self.remarks.append(found)

    def take(self, field: str, name: str) -> None:
        """A request's ``field`` was found under ``name``."""
        self.taken.setdefault(field, Counter())[name] += 1

    def bad(self, line: int, problem: str) -> None:
        """Count a line that cannot be read; WorkloadError if there are more than the options allow."""
        if not self.bad_lines:
            self._first = (line, hidden_users(problem))
        self.bad_lines += 1
        most = self.options.max_bad_lines
        if self.bad_lines > most:
            first, what = self._first
            allowed = f"--max-bad-lines allows {most:,}"
            if self.bad_lines == 1:
                raise WorkloadError(self.path, first, f"{what} ({allowed})")
            many = f"{self.bad_lines:,} lines cannot be read, and {allowed}"
            raise WorkloadError(self.path, line, f"{many}; line {first}: {what}")

    @property
    def bad_note(self) -> str | None:
        """A sentence about what could not be read; None if all could."""
        if not self.bad_lines:
            return None
        line, problem = self._first
        lines = "line was" if self.bad_lines == 1 else "lines were"
        return f"{self.bad_lines:,} {lines} left out; the first is line {line}: {problem}"


# ---------------------------------------------------------------------------------------------------------------------
# One record of a log, looked up by the names that services use.

_ABSENT = frozenset({"", "-", "null", "none", "nan", "n/a", "na", "\\n", "undefined"})
"""What exports write for nothing."""
_PATHS: Mapping[str, Sequence[FieldPath]] = {field: tuple(map(path_of, names)) for field, names in KNOWN_NAMES.items()}
_LENGTHS = ("prompt_len", "max_tokens")
_PATHS_WITHIN: Mapping[str, Sequence[FieldPath]] = {
    **{
        field: _PATHS[field]
        for field in (*_LENGTHS, "total_tokens", "cached_tokens", "cache_creation", "thoughts", "reasoning")
    },
    "model": [path for path in _PATHS["model"] if len(path.parts) > 1],
}
"""Fields that are found at any depth, under these names: services put counts wherever they like."""
_MOST_LEVELS = 5


class FoundValue(msgspec.Struct, frozen=True):
    """A value, and what the record calls it."""

    name: str = ""
    value: object | None = None


class RecordView:
    """A record under normal names."""

    __slots__ = ("_children", "_fields", "_record", "_suffixes")

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record
        self._suffixes: dict[str, tuple[str, object]] | None = None
        self._fields: dict[str, tuple[str, object]] = {}
        self._children: dict[str, RecordView | None] = {}
        bare: list[tuple[str, tuple[str, object]]] = []
        for key, value in record.items():
            exact, *rest = normals(str(key))
            self._fields.setdefault(exact, (str(key), value))
            bare += [(each, (str(key), value)) for each in rest]
        for name, value in bare:
            self._fields.setdefault(name, value)

    def has(self, name: str) -> bool:
        """Whether there is such a field, whatever it holds."""
        return self._at(path_of(name)) is not None

    def find(self, field: str, *, but: str = "") -> FoundValue:
        """What services call ``field``; the first name under which something is. ``but``: a name that is not meant.

        Counts of tokens are looked for within other fields, too, the outermost first; so is a model under a name in
        two parts (``meta.request_model``).
        """
        found = self.first(_PATHS[field], but)
        if found.value is None and field in _PATHS_WITHIN:
            found = self._find_in_dotted(_PATHS_WITHIN[field])
            if found.value is None:
                found = self._find_within(_PATHS_WITHIN[field])
        return found

    def first(self, paths: Sequence[FieldPath], but: str = "") -> FoundValue:
        """The first of some names under which something is, without looking deeper."""
        for path in paths:
            if path.flat == but:
                continue
            if path.flat in self._fields or path.parts[0] in self._fields:
                found = self._at(path)
                if found is not None and not is_absent(found.value):
                    return found
        return FoundValue()

    def _find_within(self, paths: Sequence[FieldPath]) -> FoundValue:
        views = [("", self)]
        for _ in range(_MOST_LEVELS):
            views = [(f"{at}{key}.", child) for at, view in views for key, child in view.within()]
            for at, child in views:
                found = child.first(paths)
                if found.value is not None:
                    return FoundValue(f"{at}{found.name}", found.value)
        return FoundValue()

    def _find_in_dotted(self, paths: Sequence[FieldPath]) -> FoundValue:
        """A column that ends with a known name, of a table whose columns are called by all keys on the way."""
        if self._suffixes is None:
            self._suffixes = {}
            for key, value in self._record.items():
                parts = str(key).split(".")
                for i in range(1, len(parts)):
                    for name in normals(".".join(parts[i:])):
                        self._suffixes.setdefault(name, (str(key), value))
        hits = (self._suffixes[path.flat] for path in paths if path.flat in self._suffixes)
        return next((FoundValue(*hit) for hit in hits if not is_absent(hit[1])), FoundValue())

    def within(self) -> Iterator[tuple[str, RecordView]]:
        """The records within this one, by their keys."""
        for key, value in self._record.items():
            if isinstance(value, Mapping):
                yield str(key), RecordView(value)

    def named(self, name: str) -> FoundValue:
        """The field that the user has named."""
        found = self._at(path_of(name))
        return FoundValue(name) if found is None or is_absent(found.value) else FoundValue(name, found.value)

    @property
    def says_a_length(self) -> bool:
        """Whether the record itself says the length of a prompt or an output, not only an object within it."""
        return any(self.first(_PATHS[field]).value is not None for field in _LENGTHS)

    @property
    def has_a_length(self) -> bool:
        """Whether the record, or an object within it, says the length of a prompt or an output."""
        return any(self.find(field).value is not None for field in _LENGTHS)

    def _at(self, path: FieldPath) -> FoundValue | None:
        if path.flat in self._fields:
            return FoundValue(*self._fields[path.flat])
        view, keys = self, []
        for part in path.parts[:-1]:
            keys.append(view.key(part))
            child = view.child(part)
            if child is None:
                return None
            view = child
        found = view._fields.get(path.parts[-1])
        return None if found is None else FoundValue(".".join([*keys, found[0]]), found[1])

    def key(self, part: str) -> str:
        """How the record spells a key."""
        return self._fields[part][0] if part in self._fields else part

    def child(self, part: str) -> RecordView | None:
        """The record under a key; None if there is none."""
        if part not in self._children:
            value = _object(self._fields[part][1]) if part in self._fields else None
            self._children[part] = None if value is None else RecordView(value)
        return self._children[part]


def is_absent(value: object) -> bool:
    """Whether a field holds nothing, as exports write it."""
    if isinstance(value, str):
        return value.strip().casefold() in _ABSENT
    return value is None or (isinstance(value, float) and math.isnan(value))


def payload_of(record: Mapping[str, Any], depth: int = 3) -> Mapping[str, Any]:
    """The record, with the fields of an object within it if only that object says lengths: a collector's envelope."""
    if depth and not RecordView(record).says_a_length:
        for inner in _inner(record):
            within = payload_of(inner, depth - 1)
            if RecordView(within).has_a_length:
                return {**record, **within}
    return record


def _inner(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    keys = {str(key).casefold(): key for key in record}
    for name in KNOWN["envelopes"]:
        inner = _object(record.get(keys.get(name.casefold(), name)))
        if inner is not None:
            yield inner


def list_of(value: object) -> list[Any]:
    """A list, or the text of one; of an object alone a list of it, of anything else an empty one."""
    if isinstance(value, str) and value[:1] in "[{":
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return []
    return value if isinstance(value, list) else [value] if isinstance(value, Mapping) else []


def _object(value: object) -> Mapping[str, Any] | None:
    """An object, or the text of one."""
    if isinstance(value, str) and value[:1] == "{":
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    return value if isinstance(value, Mapping) else None
