"""Logs of engines: vLLM's and SGLang's own lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from tokenyard.errors import WorkloadError, shown
from tokenyard.patterns import lazy_pattern
from tokenyard.quick_dataclass import dataclass
from tokenyard.workload.logs.fields import request_from
from tokenyard.workload.logs.logged import LoggedRequest, LogReading, RecordView
from tokenyard.workload.logs.moments import Clock
from tokenyard.workload.logs.records import CHARACTERS_PER_TOKEN
from tokenyard.workload.logs.source import BAD_JSON, Source

# ---------------------------------------------------------------------------------------------------------------------
# What ``vllm serve --enable-log-requests --enable-log-outputs`` writes about requests.
#
#     INFO 11-22 03:17:52 [logger.py:63] Received request cmpl-1-0: params: SamplingParams(..., max_tokens=64, ...), ...
#     DEBUG ... Request cmpl-1-0 details: prompt: '...', prompt_token_ids: [1, 2, ...], ...
#     INFO ... Generated response cmpl-1: output: '...', output_token_ids: [...], finish_reason: stop        (to 0.22)
#     DEBUG ... Generated response cmpl-1 details: output_token_ids: [...]                                   (from 0.23)
#     INFO ... Generated response cmpl-1: output: '...', finish_reason: stop
#
# vLLM writes prompts only at ``VLLM_LOGGING_LEVEL=DEBUG`` (older versions always): without their token ids a
# request's length is not known, and its lines count as unreadable. ``--max-log-len N`` cuts prompts and outputs at N
# tokens. A streamed answer is logged as its text, or as ``<streaming_complete: 64 tokens>``. Times are whole seconds
# without a year, unless the container's or the collector's log says them in front.

SIGN = lazy_pattern(r"(?:INFO|DEBUG|WARNING) \d\d-\d\d \d\d:\d\d:\d\d ")
"""How a line of vLLM's log begins, behind the name of a process."""
SAYS_REQUESTS = lazy_pattern(r"Received request \S+: |Request \S+ details: |Generated response \S+")
_COLOURS = lazy_pattern(r"\x1b\[[0-9;]*m|\\u001b\[[0-9;]*m")
_LINE = lazy_pattern(
    r"(?:INFO|DEBUG|WARNING) (?P<when>\d\d-\d\d \d\d:\d\d:\d\d) \[[^\]]{0,200}\] (?P<said>.*)", re.DOTALL
)
_IN_FRONT = lazy_pattern(r"(?:\S+ )??(?P<when>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d))\s")
"""The time that Kubernetes and ``docker logs -t`` write in front of a line."""
_RECEIVED = lazy_pattern(r"Received request (?P<id>\S+): ")
_DETAILS = lazy_pattern(r"Request (?P<id>\S+) details: ")
_GENERATED = lazy_pattern(
    r"Generated response (?P<id>\S+?)(?P<stream> \(streaming (?:delta|complete)\))?(?: details)?: "
)
_PROMPT_IDS = lazy_pattern(r"prompt_token_ids: \[(?P<ids>[\d, ]*)\]")
_OUTPUT_IDS = lazy_pattern(r"output_token_ids: [\[(](?P<ids>[\d, ]*)[\])]")
_STREAMED = lazy_pattern(r"output: '<streaming_complete: (?P<tokens>\d{1,9}) tokens>'")
_TEXT_ENDS = (", finish_reason: ", ", output_token_ids: None, finish_reason: ")
"""What stands behind the quote that ends an output's text."""
_REASON = lazy_pattern(r"finish_reason: (?P<reason>\w+)\s*$")
_MAX_TOKENS = lazy_pattern(r"\bmax_tokens=(?P<tokens>\d{1,12})\b")
_CHOICES = lazy_pattern(r"SamplingParams\(n=(?P<n>\d{1,4}),")
_ADAPTER = lazy_pattern(r"lora_request: LoRARequest\(lora_name='(?P<name>[^']+)'")
_MODEL_LENGTH = lazy_pattern(
    r"(?:max_seq_len=|'max_model_len': |max_model_len=|Using max model len )(?P<tokens>\d{1,9})\b"
)
_MAX_LOG_LEN = lazy_pattern(r"(?:'max_log_len': |--max-log-len[ =])(?P<tokens>\d{1,9})\b")
_LEAP_YEAR = 2024
"""The year that is taken, since none is logged: it is a leap year, so that it has all days."""
_YEAR = 366 * 86_400.0
_BACK = 180 * 86_400.0
"""Seconds by which days must go back for a new year to have begun."""
_FEWEST_CUT = 3
"""Prompts of one length, the longest, from which a cut is suspected that nothing says."""
_SHARE_CUT = 0.1


@dataclass(slots=True)
class _RequestInLog:
    """What the lines of a log say of one request."""

    line: int
    moment: float
    prompt_tokens: int = 0
    max_tokens: int = 0
    output_tokens: int = 0
    text_tokens: int = 0
    """Tokens of its output's text, estimated."""
    ends_by_length: bool = False
    adapter: str | None = None
    choices: int = 1


class _Log:
    """What the lines of a log hold so far."""

    def __init__(self, reading: LogReading) -> None:
        self.reading = reading
        self.seen: dict[str, _RequestInLog] = {}
        self.model_length: int | None = None
        self.max_log_len: int | None = None
        self._now = 0.0
        self._turns = 0
        self.has_finer_times = False

    def line(self, number: int, raw: bytes) -> None:
        text = _COLOURS.sub("", raw.decode("utf-8", "replace"))
        when, found = None, _LINE.search(text)
        if found is None or text[:1] == "{":
            when, text = self._unwrapped(text)
            inner = _LINE.search(text)
            found = inner or found
        elif front := _IN_FRONT.match(text):
            when = front["when"]
        if found is None and not (when and SAYS_REQUESTS.search(text)):
            self._config(text)
            return
        moment = self._moment(when, found["when"] if found else "")
        if moment is None:
            self.reading.bad(number, f"{shown(found['when'] if found else when)} is no day and time")
            return
        said = found["said"] if found else text
        self._config(said)
        self._read_request_line(said, moment, number)

    def _unwrapped(self, text: str) -> tuple[str | None, str]:
        """Time and text of a line that a collector has put into JSON."""
        try:
            record = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None, text
        if not isinstance(record, Mapping):
            return None, text
        line = next((record[key] for key in ("message", "log", "MESSAGE", "line", "msg") if key in record), None)
        when = RecordView(record).find("arrival_time").value
        return (None if when is None else str(when)), line if isinstance(line, str) else text

    def _moment(self, when: str | None, day: str) -> float | None:
        """Seconds of a clock of ours; None for a day or an hour that there is not."""
        if when is not None:
            try:
                moment = Clock().moment(when)
            except ValueError:
                pass
            else:
                self.has_finer_times = True
                return moment
        try:
            moment = datetime.strptime(f"{_LEAP_YEAR}-{day}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
        except ValueError:
            return None
        if moment + self._turns * _YEAR < self._now - _BACK:
            self._turns += 1
        self._now = moment + self._turns * _YEAR
        return self._now

    def _config(self, said: str) -> None:
        """What the server says of itself when it starts."""
        if "Received request" in said or "Generated response" in said or " details: " in said:
            return
        if found := _MODEL_LENGTH.search(said):
            self.model_length = int(found["tokens"])
        if found := _MAX_LOG_LEN.search(said):
            self.max_log_len = int(found["tokens"])

    def _read_request_line(self, said: str, moment: float, number: int) -> None:
        if (found := _RECEIVED.match(said)) or (found := _DETAILS.match(said)):
            request = self.seen.setdefault(found["id"], _RequestInLog(number, moment))
            # What clients wrote stands between quotes, in front of what vLLM counts: the last one is vLLM's.
            if ids := _last(_PROMPT_IDS, said):
                request.prompt_tokens = _count(ids["ids"])
            params = said[max(0, said.rfind("params: ")) :]
            if tokens := _last(_MAX_TOKENS, params):
                request.max_tokens = int(tokens["tokens"])
            if choices := _CHOICES.search(params):
                request.choices = int(choices["n"])
            if adapter := _last(_ADAPTER, said):
                request.adapter = adapter["name"]
        elif found := _GENERATED.match(said):
            # A completion's prompts are numbered, its answers are not.
            request_or_none = self.seen.get(found["id"]) or self.seen.get(f"{found['id']}-0")
            if request_or_none is not None:
                _take_output(request_or_none, said, found["stream"] or "")


def _take_output(request: _RequestInLog, said: str, stream: str) -> None:
    if ids := _last(_OUTPUT_IDS, said):
        request.output_tokens += _count(ids["ids"])
    if "complete" in stream and (tokens := _STREAMED.search(said)):
        request.output_tokens = int(tokens["tokens"])
    elif "delta" not in stream and (length := _text_length(said)) is not None:
        request.text_tokens += max(1, length // CHARACTERS_PER_TOKEN)
    if (reason := _REASON.search(said)) and reason["reason"] == "length":
        request.ends_by_length = True


def _text_length(said: str) -> int | None:
    """Characters of an output's text, as Python quotes it; None if the line holds none."""
    mark = "output: "
    begin = said.find(mark) + len(mark)
    quote = said[begin : begin + 1]
    if begin < len(mark) or quote not in ("'", '"'):
        return None
    end = max(said.rfind(quote + behind) for behind in _TEXT_ENDS)
    return end - begin - 1 if end > begin else None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    *_, found = (None, *pattern.finditer(text))
    return found


def _count(ids: str) -> int:
    return ids.strip(" ,").count(",") + 1 if ids.strip(" ,") else 0


def read_vllm_log(source: Source, reading: LogReading) -> Iterator[LoggedRequest]:
    """The requests in order of arrival; other lines are ignored."""
    log = _Log(reading)
    for number, line in source.lines():
        log.line(number, line)
    if not log.seen:
        raise WorkloadError(
            source.path,
            0,
            "is vLLM's log, and says nothing of single requests: start it with --enable-log-requests "
            "--enable-log-outputs and VLLM_LOGGING_LEVEL=DEBUG",
        )
    if not log.has_finer_times:
        reading.note("whole_seconds_of_vllm")
    known = []
    for request_id, request in log.seen.items():
        if request.prompt_tokens:
            known.append((request_id, request))
        else:
            problem = f"request {request_id}: its prompt's length is not logged (VLLM_LOGGING_LEVEL=DEBUG logs it)"
            reading.bad(request.line, problem)
    requests = [request for _, request in known]
    _mend_cuts(requests, log)
    _mend_outputs(requests, reading)
    for request_id, request in known:
        if not request.output_tokens:
            reading.bad(request.line, f"request {request_id}: neither its output nor max_tokens is logged")
            continue
        yield LoggedRequest(
            request.moment,
            request.prompt_tokens,
            request.output_tokens,
            request_id=request_id,
            lora_name=request.adapter,
        )


def _mend_cuts(requests: list[_RequestInLog], log: _Log) -> None:
    """Lengths at which ``--max-log-len`` has cut: from what else the log says, or a warning."""
    longest = max((each.prompt_tokens for each in requests), default=0)
    cut = [each for each in requests if each.prompt_tokens == longest]
    is_said = log.max_log_len == longest
    if not is_said and (len(cut) < _FEWEST_CUT or len(cut) < _SHARE_CUT * len(requests)):
        return
    for each in requests:  # answers are cut at the same length
        if each.output_tokens == longest and each.ends_by_length:
            each.output_tokens = max(longest, each.max_tokens)
    outputs = sum(each.output_tokens == longest for each in requests)
    said = f"vLLM was started with --max-log-len {longest}" if is_said else f"looks like --max-log-len {longest}"
    mended = _from_room_left(requests, cut, log.model_length)
    if mended:
        log.reading.note("prompts_mended", cause=said, mended=mended)
    else:
        log.reading.note("prompts_cut", cut=len(cut), count=len(requests), longest=longest, cause=said)
    if outputs:
        log.reading.note("outputs_cut", count=outputs, longest=longest)


def _from_room_left(requests: list[_RequestInLog], cut: list[_RequestInLog], model_length: int | None) -> int:
    """How many cut prompts got their length from ``max_tokens``: by default it is all that the prompt leaves.

    Only where that holds for every prompt that is not cut, three at least: then no client asks for less.
    """
    whole = [each for each in requests if each.prompt_tokens != cut[0].prompt_tokens]
    rooms = {each.prompt_tokens + each.max_tokens for each in whole}
    if len(whole) < _FEWEST_CUT or len(rooms) != 1 or (model_length or rooms.copy().pop()) not in rooms:
        return 0
    room = rooms.pop()
    if any(not each.prompt_tokens <= room - each.max_tokens < room for each in cut):
        return 0
    for each in cut:
        each.prompt_tokens = room - each.max_tokens
    return len(cut)


def _mend_outputs(requests: list[_RequestInLog], reading: LogReading) -> None:
    """Outputs that no token ids say: from their text, from the other requests, or all that was requested."""
    estimated = 0
    for each in requests:
        if not each.output_tokens and each.text_tokens:
            each.output_tokens = min(each.text_tokens, each.max_tokens or each.text_tokens)
            estimated += 1
    if estimated:
        of = {"estimated": estimated, "count": len(requests), "characters": CHARACTERS_PER_TOKEN}
        reading.note("outputs_estimated", **of)
    several = sum(each.choices > 1 for each in requests)
    if several:
        reading.note("several_answers", count=several)
    logged = [each.output_tokens for each in requests if each.output_tokens]
    missing = [each for each in requests if not each.output_tokens]
    if not missing:
        return
    if logged:
        from statistics import median  # noqa: PLC0415 - loads fractions, for few logs

        usual = int(median(logged))
        for each in missing:
            each.output_tokens = min(usual, each.max_tokens or usual)
        reading.note("outputs_assumed", missing=len(missing), count=len(requests), usual=usual)
        return
    for each in missing:
        each.output_tokens = each.max_tokens
    reading.note("no_outputs")


# ---------------------------------------------------------------------------------------------------------------------
# What SGLang's ``--log-requests`` writes, as text or as JSON (``--log-requests-format json``).
#
#     [2026-11-22 03:17:52] Receive: obj=GenerateReqInput(rid='1f', ...)
#     [2026-11-22 03:17:53] Finish: obj=GenerateReqInput(rid='1f', ...), out={..., 'meta_info': {'id': '1f', ...,
#         'prompt_tokens': 12, 'completion_tokens': 64, 'cached_tokens': 0, 'e2e_latency': 1.02}}
#   | {"timestamp": "2026-11-22T03:17:53.125", "event": "request.finished", "rid": "1f", "out": {"meta_info": {...}}}
#
# A request arrives when it is received; of one that is only finished in the log, its latency is subtracted. The
# server's clock has no time zone and is taken as UTC.

SAYS_SGLANG = lazy_pattern(
    r"(?:Receive|Finish): obj=\w*Generate\w*\(|\"event\": ?\"request\.(?:received|finished)\", ?\"rid\":"
)
_SGLANG_LOG_LINE = lazy_pattern(
    r"\[(?P<when>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)[^\]]*\] (?P<what>Receive|Finish): (?P<said>.*)", re.DOTALL
)
_RID = lazy_pattern(r"\brid='(?P<id>[^']+)'")
_COUNT = lazy_pattern(
    r"'(?P<name>id|prompt_tokens|completion_tokens|cached_tokens|e2e_latency)': '?(?P<value>[\w.-]+)'?"
)
_META = "'meta_info': {"


def read_sglang_log(source: Source, reading: LogReading) -> Iterator[LoggedRequest]:
    """The requests that ended, in the order in which they did; other lines are ignored."""
    received: dict[str, object] = {}
    for number, raw in source.lines():
        told = _read_line(raw.decode("utf-8", "replace"))
        if told is None:
            continue
        when, request_id, meta = told
        if meta is None:
            received.setdefault(request_id, when)
            continue
        record = {**meta, "request_id": request_id}
        latency = meta.get("e2e_latency")
        start = received.get(request_id)
        record |= {"start_time": start} if start is not None else {"end_time": when}
        try:
            logged = request_from({**record, "duration": latency}, reading)
        except ValueError as error:
            reading.bad(number, str(error))
            continue
        if logged is not None:
            yield logged


def _read_line(text: str) -> tuple[object, str, Mapping[str, Any] | None] | None:
    """When, of which request, and what its end says (None: it was received); None for any other line."""
    at = text.find("{")
    if at >= 0 and SAYS_SGLANG.search(text[at:]) and "obj=" not in text[:at]:
        return _read_json_line(text[at:])
    found = _SGLANG_LOG_LINE.search(text)
    if found is None:
        return None
    said = found["said"]
    # A client's text stands in front of what SGLang counts: the last one is SGLang's.
    if found["what"] == "Receive":
        ids = _RID.findall(said)
        return (found["when"], ids[-1], None) if ids else None
    meta = {each["name"]: each["value"] for each in _COUNT.finditer(said, max(0, said.rfind(_META)))}
    return (found["when"], meta.pop("id"), meta) if "id" in meta else None


def _read_json_line(text: str) -> tuple[object, str, Mapping[str, Any] | None] | None:
    try:
        record = msgspec.json.decode(text)
    except BAD_JSON:
        return None
    if not isinstance(record, Mapping) or not isinstance(record.get("rid"), str):
        return None
    out = record.get("out")
    meta = out.get("meta_info") if isinstance(out, Mapping) else None
    if record.get("event") == "request.received":
        return record.get("timestamp"), record["rid"], None
    return (record.get("timestamp"), record["rid"], meta) if isinstance(meta, Mapping) else None
