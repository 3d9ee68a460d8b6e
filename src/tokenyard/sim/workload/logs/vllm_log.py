"""What ``vllm serve --enable-log-requests --enable-log-outputs`` writes about requests.

    INFO 11-22 03:17:52 [logger.py:63] Received request cmpl-1: params: SamplingParams(..., max_tokens=64, ...), ...
    DEBUG ... Request cmpl-1 details: prompt: '...', prompt_token_ids: [1, 2, ...], ...
    INFO ... Generated response cmpl-1: output: '...', output_token_ids: [...], finish_reason: stop

vLLM writes prompts only at ``VLLM_LOGGING_LEVEL=DEBUG`` (older versions always): without their token ids a request's
length is not known, and its lines count as unreadable. Output is what was generated, where that is logged, else
``max_tokens``. Times are whole seconds without a year.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tokenyard.errors import shown
from tokenyard.sim.workload.logs.logged import BadLines, LoggedRequest, LogOptions
from tokenyard.sim.workload.readers.lines import numbered_lines

__all__ = ["SIGN", "read_vllm_log"]

SIGN = re.compile(r"(?:INFO|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d ")
"""How a line of vLLM's log begins, behind the name of a process."""
_LINE = re.compile(r"(?:INFO|DEBUG) (?P<when>\d\d-\d\d \d\d:\d\d:\d\d) \[[^\]]*\] (?P<said>.*)")
_RECEIVED = re.compile(r"Received request (?P<id>\S+): ")
_DETAILS = re.compile(r"Request (?P<id>\S+) details: ")
_GENERATED = re.compile(r"Generated response (?P<id>\S+?)(?: \(streaming (?:delta|complete)\))?: ")
_PROMPT_IDS = re.compile(r"prompt_token_ids: \[(?P<ids>[\d, ]*)\]")
_OUTPUT_IDS = re.compile(r"output_token_ids: \[(?P<ids>[\d, ]*)\]")
_MAX_TOKENS = re.compile(r"\bmax_tokens=(?P<tokens>\d{1,12})\b")
_LEAP_YEAR = 2024
"""Stands in for the year, which is not logged: it has all days."""


@dataclass(slots=True)
class _Seen:
    line: int
    moment: float
    prompt_tokens: int = 0
    max_tokens: int = 0
    output_tokens: int = 0


def read_vllm_log(path: Path, options: LogOptions, bad: BadLines) -> Iterator[LoggedRequest]:
    """The requests in order of arrival; other lines are passed over."""
    seen: dict[str, _Seen] = {}
    for number, line in numbered_lines(path):
        said = _LINE.search(line.decode("utf-8", "replace"))
        if said is None:
            continue
        moment = _moment(said["when"])
        if moment is None:
            bad.add(number, f"{shown(said['when'])} is no day and time")
        else:
            _take_in(said["said"], moment, number, seen)
    for request_id, request in seen.items():
        if not request.prompt_tokens:
            bad.add(
                request.line,
                f"request {request_id}: its prompt's length is not logged (VLLM_LOGGING_LEVEL=DEBUG logs it)",
            )
            continue
        output = request.output_tokens or request.max_tokens
        if not output:
            bad.add(request.line, f"request {request_id}: neither its output nor max_tokens is logged")
            continue
        yield LoggedRequest(request.moment, request.prompt_tokens, output, request_id=request_id)


def _take_in(said: str, moment: float, number: int, seen: dict[str, _Seen]) -> None:
    if (found := _RECEIVED.match(said)) or (found := _DETAILS.match(said)):
        request = seen.setdefault(found["id"], _Seen(number, moment))
        if ids := _PROMPT_IDS.search(said):
            request.prompt_tokens = _count(ids["ids"])
        if tokens := _MAX_TOKENS.search(said):
            request.max_tokens = int(tokens["tokens"])
    elif (found := _GENERATED.match(said)) and found["id"] in seen and (ids := _OUTPUT_IDS.search(said)):
        seen[found["id"]].output_tokens += _count(ids["ids"])


def _count(ids: str) -> int:
    return ids.count(",") + 1 if ids.strip() else 0


def _moment(text: str) -> float | None:
    """Seconds of a clock of ours; None for a day or an hour that there is not."""
    try:
        return datetime.strptime(f"{_LEAP_YEAR}-{text}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
