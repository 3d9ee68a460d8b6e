"""From a record with keys, a JSON object or a row of CSV, to the request that it is about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from tokenyard.core.config import MAX_COUNT
from tokenyard.core.params import SOME_TOOL
from tokenyard.errors import shown
from tokenyard.patterns import lazy_pattern
from tokenyard.redaction import hidden_identity
from tokenyard.workload.logs.logged import (
    FoundValue,
    LoggedError,
    LoggedRequest,
    LogReading,
    RecordView,
    is_absent,
    list_of,
    normal,
    normals,
    path_of,
)
from tokenyard.workload.logs.moments import LEAST_UNIX, RoundedTimeError, TimeUnit, duration_seconds, unit_in_name

_THOUSANDS = lazy_pattern(r"\d{1,3}(?:,\d{3})+")
_EITHER = lazy_pattern(r"\d{1,3}\.\d{3}")
"""168.000 is 168, or 168 thousand where a point stands between thousands."""
_FAILED = frozenset({"failure", "failed", "error", "errored", "fail", "timeout", "exception", "rejected"})
_LEAST_ERROR = 400
"""HTTP's codes from here on are errors."""
_BROKEN_OFF = frozenset({"408", "499", "504", "timeout"})
"""What requests end with whose client, or a gateway, did not wait for the end: the service may have worked on them."""
_NO_GENERATION = ("embed", "rerank", "moderation", "transcription", "speech", "image_generation", "score", "classif")
_NO_GENERATION_PATH = lazy_pattern(
    r"/(?:embeddings?|rerank|moderations|audio/\w+|images/\w+|scores?|classify|pooling|tokenize|detokenize)(?=[\s?/\"]|$)"
)
_GENERATION_PATH = lazy_pattern(r"/(?:completions|messages|responses|generate\w*|invoke|converse)(?=[\s?/\"-]|$)")
_ROUNDED_BY = 2e-3
"""Seconds by which two times of one moment differ where one of them is in milliseconds."""
_CHOICES = (path_of("n"), path_of("request.n"), path_of("body.n"), path_of("model_parameters.n"), path_of("params.n"))
_MOST_CHOICES = 16
"""Answers to one prompt, above which ``n`` is hardly their number."""
_BESIDE_CACHED = lazy_pattern(r"(?:response|body|message)*(?:usage)?inputtokens|(?:input)?inputtokencount")
"""Names under which a prompt is counted without what the cache held, where that is called cache_read_input_tokens."""


def tokens_of(value: object, field: str, least: int) -> int:
    """A number of tokens; ValueError names ``field`` if it is none."""
    if isinstance(value, str):
        text = value.strip()
        if _THOUSANDS.fullmatch(text):
            text = text.replace(",", "")
        if _EITHER.fullmatch(text):
            raise ValueError(
                f"{field} = {shown(value)}: may be {float(text):g} or {text.replace('.', ',')}: write no point"
            )
        value = int(text) if text.isdecimal() and len(text) < 19 else _float(text, value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
        raise ValueError(f"{field} = {shown(value)}: give a whole number of tokens from {least} on")
    return value


def _float(text: str, otherwise: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return otherwise


class _Fields:
    """The fields of one record, and what they are called."""

    def __init__(self, view: RecordView, reading: LogReading) -> None:
        self._view = view
        self._reading = reading
        self._found: list[tuple[str, str]] = []

    def find(self, field: str) -> FoundValue:
        """The value of one of our fields; it is remembered where it was."""
        columns = self._reading.options.columns
        found = self._view.named(columns[field]) if field in columns else self._view.find(field)
        if found.value is not None:
            self._found.append((field, found.name))
        return found

    def without(self, field: str, but: str) -> FoundValue:
        """The value of a field under another name than ``but``, which turned out to mean something else."""
        self._found = [each for each in self._found if each[0] != field]
        found = self._view.find(field, but=but)
        if found.value is not None:
            self._found.append(("end_time", found.name))
        return found

    def text(self, field: str) -> str | None:
        """The value of a field as text; None for an object or a list."""
        value = self.find(field).value
        return None if value is None or isinstance(value, Mapping | list) else str(value)

    def identity(self, field: str) -> str | None:
        """The value of a field that identifies something; where it may be a secret key, a digest, and a remark."""
        found = self.find(field)
        if found.value is None or isinstance(found.value, Mapping | list):
            return None
        said = str(found.value)
        kept = hidden_identity(found.name, said, is_person=field == "user")
        if kept != said:
            self._reading.note("keys", field=field, name=found.name)
        return kept

    def took(self) -> None:
        """Note which names the fields of a request were found under."""
        for field, name in self._found:
            self._reading.take(field, name)


def request_from(
    record: Mapping[str, Any], reading: LogReading, default: TimeUnit | None = None
) -> LoggedRequest | None:
    """The request that ``record`` is about; None if it is about none, or one that was not served.

    ``default``: unit of durations of which nothing else says it. ValueError names the field that is missing or cannot
    be.
    """
    view = RecordView(record)
    fields = _Fields(view, reading)
    span, parent = view.find("span").value, view.find("parent").value
    if span is not None and parent is not None:
        reading.parents[str(span)] = str(parent)
    prompt, output = fields.find("prompt_len"), fields.find("max_tokens")
    why = _why_not_served(view, prompt.value, output.value)
    if why:
        reading.left_out[why] += 1
        return None
    status = _error_of(view)
    is_broken_off = status is not None and not _is_refusal(status) and not _is_zero(output.value)
    if status is not None and not is_broken_off and _is_asked(view, prompt.value, output.value):
        reading.not_served.append(LoggedError(status, reading.requests))
        return None
    columns = reading.options.columns
    if prompt.value is None and output.value is None and not {"prompt_len", "max_tokens"} & set(columns):
        reading.ignored += 1
        return None
    for field, found in (("prompt_len", prompt), ("max_tokens", output)):
        if found.value is None:
            where = columns.get(field)
            fix = f"the column {where!r} is not there" if where else f"name its column: --columns {field}=NAME"
            raise ValueError(f"says nothing of {field}: {fix}")
    _look_for_sums(view, reading)
    choices = view.first(_CHOICES).value
    if isinstance(choices, int | str) and str(choices).isdecimal() and 1 < int(choices) <= _MOST_CHOICES:
        reading.with_choices += 1
    times = _times(fields, reading, default)
    prompt_tokens, cached_tokens = _prompt(view, fields, reading, prompt)
    total = fields.find("total_tokens").value
    logged = LoggedRequest(
        moment=times.moment,
        prompt_tokens=prompt_tokens,
        output_tokens=_output(view, reading, output),
        cached_tokens=cached_tokens,
        duration=times.duration,
        request_id=fields.identity("request_id"),
        group=_named(view, reading, "group"),
        lora_name=fields.text("lora_name"),
        says_unit=times.says_unit,
        session=fields.identity("session"),
        tool=_tool(view, fields, reading),
        user=fields.identity("user"),
        priority=_priority(fields, reading),
        model=fields.text("model"),
        total_tokens=None if total is None else tokens_of(total, "total_tokens", 0),
        span=None if span is None else str(span),
        tier=fields.identity("tier"),
        reasoning_tokens=_reasoning(view, reading, output),
        ttft=_ttft(view, fields, reading, times, default),
        error=status,
        file=reading.path,
        place=reading.requests + 1,
    )
    reading.requests += 1
    fields.took()
    return logged


def _named(view: RecordView, reading: LogReading, field: str) -> str | None:
    """A field that has no known names: only the user can name its column."""
    column = reading.options.columns.get(field)
    value = None if column is None else view.named(column).value
    return None if value is None else str(value)


# ---- the tool that an answer calls: by its name, by its calls, or by why it ended


def _tool(view: RecordView, fields: _Fields, reading: LogReading) -> str | None:
    """Name of the tool that the answer calls, several joined; "": it calls none, None: nothing is said."""
    named = fields.text("tool")
    if named is not None:
        return named
    found, reason, answer = (view.find(field) for field in ("tool_calls", "finish_reason", "answer"))
    parts = [each for each in list_of(answer.value) if isinstance(each, Mapping)]
    of_parts = [call for each in parts for call in _calls_in(each)]
    calls = of_parts or list_of(found.value) or ([found.value] if isinstance(found.value, str) else [])
    said = list_of(reason.value) or ([] if reason.value is None else [reason.value])
    ends = [each["finish_reason"] for each in parts if each.get("finish_reason")]
    if not calls and not any(str(each).casefold() in _CALLING for each in (*said, *ends)):
        return "" if said or ends else None
    where = answer.name if of_parts else found.name if calls else reason.name or answer.name
    reading.take("tool", where)
    return "+".join(dict.fromkeys(name for each in calls if (name := _name_of_call(each)))) or SOME_TOOL


def _calls_in(part: Mapping[str, Any]) -> list[Any]:
    """The calls in a part of an answer: the part itself, or those of its message."""
    if part.get("type") in _CALLS:
        return [part]
    message = part.get("message")
    own = message if isinstance(message, Mapping) else {}
    return list_of(own.get("tool_calls")) or list_of(own.get("function_call"))


_CALLS = frozenset({"tool_use", "function_call"})
"""Types of parts of an answer that call a tool."""
_CALLING = frozenset({"tool_calls", "tool_call", "tool_use", "function_call"})
"""Reasons for which an answer ends that calls a tool."""


def _name_of_call(call: object) -> str | None:
    """The name in a call as services write it; the text itself where there is only a name."""
    if isinstance(call, Mapping):
        inner = call.get("function")
        call = (inner if isinstance(inner, Mapping) else call).get("name")
    return call if isinstance(call, str) else None


def _look_for_sums(view: RecordView, reading: LogReading) -> None:
    """A bill or a dashboard has a row per hour or model, and says of how many requests."""
    found = view.find("requests")
    if isinstance(found.value, bool | Mapping | list) or "prompt_len" in reading.options.columns:
        return
    try:
        count = float(str(found.value))
    except ValueError:
        return
    if count > 1 and reading.why_sums is None:
        reading.why_sums = (
            f"{found.name} = {shown(found.value)}: a record is the sum of several requests, and says nothing of single "
            "ones: export single requests; if it means something else, name the columns (--columns prompt_len=NAME)"
        )


def _output(view: RecordView, reading: LogReading, output: FoundValue) -> int:
    """Tokens of the answer; Gemini counts those of its thoughts beside it."""
    tokens = tokens_of(output.value, "max_tokens", 0)
    thoughts = view.find("thoughts")
    if thoughts.value is None or not normal(output.name).endswith("candidatestokencount"):
        return tokens
    reading.note("thoughts_beside", output=output.name, thoughts=thoughts.name)
    return tokens_of(tokens + tokens_of(thoughts.value, "thoughtsTokenCount", 0), "max_tokens", 0)


def _reasoning(view: RecordView, reading: LogReading, output: FoundValue) -> int:
    """Tokens of reasoning; whether they are part of the output, the whole log shows."""
    found = view.find("reasoning")
    try:
        tokens = 0 if found.value is None else tokens_of(found.value, found.name, 0)
    except ValueError:
        return 0
    if tokens:
        reading.of_reasoning = output.name, found.name
    return tokens


def _prompt(view: RecordView, fields: _Fields, reading: LogReading, prompt: FoundValue) -> tuple[int, int | None]:
    """Tokens of the prompt, and of them those that the cache held; None: it does not say.

    Anthropic's usage, and vLLM's in that format, counts what the cache held and what it took beside ``input_tokens``.
    """
    tokens = tokens_of(prompt.value, "prompt_len", 0)
    found = fields.find("cached_tokens")
    cached = 0 if found.value is None else tokens_of(found.value, "cached_tokens", 0)
    if _BESIDE_CACHED.fullmatch(normal(prompt.name)) and normal(found.name).endswith(
        ("cachereadinputtokens", "cachereadinputtokencount")
    ):
        created = view.find("cache_creation").value
        tokens += cached + (0 if created is None else tokens_of(created, "cache_creation_input_tokens", 0))
        reading.note("cached_beside", prompt=prompt.name, cached=found.name)
    return tokens_of(tokens, "prompt_len", 1), None if found.value is None else min(cached, tokens)


# ---- times, which services call alike and mean different things by


_RECORD_TIME = "timegenerated"
"""What Azure calls the moment at which a record was made."""
_REQUEST_TIME, _UNIX_TIME = "requesttime", "msec"
"""What nginx calls the seconds that a request took, and the moment it ended, to the millisecond."""


class _Times(msgspec.Struct, frozen=True):
    """When a request came, and how long it took, as far as its record says; in seconds."""

    moment: float | None
    duration: float | None
    says_unit: bool
    """Whether the name of the field says the unit of the moment."""


class _TimeFields(NamedTuple):
    """Where a record says them."""

    start: FoundValue
    end: FoundValue
    duration: float | None
    """Seconds."""


def _times(fields: _Fields, reading: LogReading, default: TimeUnit | None) -> _Times:
    start, end, duration = _time_fields(fields, reading, default)
    moment = None if start.value is None else _moment(reading, start)
    if end.value is not None and (moment is None or duration is None):
        ended = _moment(reading, end)
        if ended is not None and moment is None and duration is not None:
            moment = ended - duration
            reading.note("ends", end=end.name)
        elif ended is not None and moment is not None and ended >= moment:
            duration = ended - moment
    return _Times(moment, duration, says_unit=unit_in_name(start.name) is not None)


def _time_fields(fields: _Fields, reading: LogReading, default: TimeUnit | None) -> _TimeFields:
    start, end = fields.find("arrival_time"), fields.find("end_time")
    if normal(end.name) == _UNIX_TIME and not _is_unix(end.value):
        end = fields.without("end_time", _UNIX_TIME)
    if _RECORD_TIME in normals(start.name) and "arrival_time" not in reading.options.columns:
        return _azure_times(fields, reading, start, end, default)
    if _is_nginx_duration(start):
        logged = fields.without("arrival_time", _REQUEST_TIME)
        ended = end if logged.value is None else logged
        if ended.value is not None:
            return _TimeFields(FoundValue(), ended, duration_seconds(start.value))
    return _TimeFields(start, end, _duration(fields, reading, default))


def _azure_times(
    fields: _Fields, reading: LogReading, start: FoundValue, end: FoundValue, default: TimeUnit | None
) -> _TimeFields:
    """Azure's records are made when a call has ended; its durations are milliseconds, whatever they are called."""
    duration = _duration(fields, reading, default or TimeUnit.MILLISECONDS)
    if duration is not None:
        return _TimeFields(FoundValue(), start if end.value is None else end, duration)
    reading.note("record_times", start=start.name)
    return _TimeFields(start, end, None)


def _is_unix(value: object) -> bool:
    try:
        return float(str(value)) >= LEAST_UNIX
    except ValueError:
        return False


def _is_nginx_duration(found: FoundValue) -> bool:
    """Whether it is nginx's request_time: seconds that a request took, in a line that is written when it ends."""
    if normal(found.name) != _REQUEST_TIME or isinstance(found.value, bool):
        return False
    try:
        return 0 <= float(str(found.value)) < LEAST_UNIX
    except ValueError:
        return False


def _moment(reading: LogReading, found: FoundValue) -> float | None:
    """The time; None if a spreadsheet has rounded it, which is reported once."""
    try:
        # nginx's msec are seconds.
        return reading.clock.moment(found.value, "" if normal(found.name) == _UNIX_TIME else found.name)
    except RoundedTimeError as error:
        if reading.rounded is None:
            reading.rounded = str(error)
        return None


def _duration(fields: _Fields, reading: LogReading, default: TimeUnit | None, field: str = "duration") -> float | None:
    """Seconds of a duration in the unit that its name says; of a column that the user named also in the unit of the
    log's times.
    """
    found = fields.find(field)
    if found.value is None:
        return None
    said = reading.options.time_unit if field in reading.options.columns else None
    try:
        return duration_seconds(found.value, unit_in_name(found.name) or said or default or TimeUnit.SECONDS)
    except ValueError:
        if field in reading.options.columns:
            raise
        return None


def _ttft(
    view: RecordView, fields: _Fields, reading: LogReading, times: _Times, default: TimeUnit | None
) -> float | None:
    """Seconds to the first token: as the record says it, or by the moment at which the token came.

    A moment that is the end is none of a first token: a gateway writes it where an answer was not streamed.
    """
    seconds = _duration(fields, reading, default, "ttft")
    if seconds is not None or times.moment is None:
        return seconds
    first = view.find("first_token_time")
    try:
        since = None if first.value is None else reading.clock.moment(first.value, first.name) - times.moment
    except ValueError:
        return None
    end = math.inf if times.duration is None else times.duration - _ROUNDED_BY
    if since is None or not 0 <= since < end:
        return None
    reading.take("ttft", first.name)
    return since


def _priority(fields: _Fields, reading: LogReading) -> int:
    found = fields.find("priority")
    if found.value is None:
        return 0
    text = str(found.value).strip()
    try:
        number = int(text)
    except ValueError:
        number = MAX_COUNT + 1
    if abs(number) > MAX_COUNT:
        if "priority" in reading.options.columns:
            fix = "vLLM serves the lower number first: give numbers"
            raise ValueError(f"priority = {shown(found.value)}: {fix}") from None
        if not any(each.code == "priority" for each in reading.remarks):
            reading.note("priority", name=found.name, value=shown(found.value))
        return 0
    return number


def _why_not_served(view: RecordView, prompt: object, output: object) -> str | None:
    """Why a record is about no request that the model served; None if it is, or nothing says so."""
    if _is_hit(view.find("from_cache").value):
        return "answered by a cache in front of the model"
    kind = view.find("call_type").value
    if isinstance(kind, str) and any(each in kind.casefold() for each in _NO_GENERATION):
        return "that generate nothing (embeddings and the like)"
    path = view.find("path").value
    if isinstance(path, str) and _NO_GENERATION_PATH.search(path.casefold()):
        return "that generate nothing (embeddings and the like)"
    is_said = not (is_absent(prompt) and is_absent(output))
    if is_said and _is_zero(output) and (_is_zero(prompt) or _has_failed(view)):
        return "failed"
    return None


def _is_zero(value: object) -> bool:
    return is_absent(value) or str(value).strip() in ("0", "0.0")


def _is_hit(value: object) -> bool:
    words = str(value).casefold().split()
    return value is True or words == ["true"] or "hit" in words


def _has_failed(view: RecordView) -> bool:
    """Whether a record says so, in one of the ways in which services do."""
    success, error = view.find("success").value, view.find("error").value
    is_told = error not in (None, False, 0) and str(error).strip().casefold() not in ("false", "0", "[]", "{}")
    return is_told or str(success).casefold() == "false" or _is_failure(view.find("status").value)


def _is_failure(value: object) -> bool:
    text = str(value).strip().casefold()
    return text in _FAILED or _is_error_code(text)


def _is_error_code(text: str) -> bool:
    return text.isdecimal() and len(text) == 3 and int(text) >= _LEAST_ERROR


def _error_of(view: RecordView) -> str | None:
    """The status of an error, as a record says it; None: it says none."""
    status = str(view.find("status").value).strip().casefold()
    if _is_failure(status):
        return status
    return "failed" if str(view.find("success").value).casefold() == "false" else None


def _is_refusal(status: str) -> bool:
    """Whether the service has not worked on it: it refused the request, or failed."""
    return status not in _BROKEN_OFF


def _is_asked(view: RecordView, prompt: object, output: object) -> bool:
    """Whether a record is about a request for an answer."""
    if not (is_absent(prompt) and is_absent(output)):
        return True
    path = view.find("path").value
    return isinstance(path, str) and _GENERATION_PATH.search(path.casefold()) is not None
