"""vLLM's metrics over time: scrapes of its ``/metrics``, or what Prometheus answers of a range, as columns.

Read are: texts in Prometheus' exposition format, one scrape after another, each begun by ``# scraped_at UNIX_SECONDS``
or with times behind its samples; and the JSON that Prometheus answers ``/api/v1/query_range`` with, one answer or a
line each. The lines that vLLM logs of its queues are read as well. Counters may start again from 0, and several engines
are added up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isinf, isnan
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.workload.logs.source import BAD_JSON
from tokenyard.workload.stats_lines import has_stats_lines, stats_samples

Numbers = npt.NDArray[np.float64]

MOST_BYTES = 256 << 20
"""Largest size of a file, or of an answer."""
_MOST_SERIES = 100_000
MOST_CELLS = 50_000_000
"""Series of one metric times moments: all of them are put side by side, 8 bytes each."""
_MOST_SECONDS = 1e12
_SAMPLE = re.compile(r"(vllm:\w{1,100})(?:\{([^}]{0,4000})\})?[ \t]+(\S{1,40})(?:[ \t]+(-?[0-9]{1,16}))?[ \t]*")
_LABEL = re.compile(r'(\w{1,60})="((?:[^"\\]|\\.){0,400})"')
_SCRAPED = re.compile(r"# scraped_at ([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*")
_DATE = re.compile(r"\s*(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d{1,9})?)\s*(?:Z|UTC|\+00:?00)?\s*")
"""A line that is nothing but a date: of the scrape below it."""
_STARTED = re.compile(r"^process_start_time_seconds(?:\{[^}]{0,400}\})?[ \t]+(\S{1,40})", re.MULTILINE)
_COUNTED = ("_total", "_sum", "_count", "_bucket")
_UNKNOWN_LIFE_S = 3600.0
"""How long a server is taken to have run that does not say it; nothing is told of it."""
_OWN = ("le", "finished_reason", "reason", "position", "sleep_state")
"""Labels that tell parts of a metric apart; the others tell engines apart."""
_NOW_CALLED = {"vllm:gpu_cache_usage_perc": "vllm:kv_cache_usage_perc"}

_Key = tuple[str, str, str]
"""Name, part, engine."""


class Histogram(NamedTuple):
    """What a histogram counted between two moments."""

    bounds: Numbers
    """Upper bounds of its buckets, ascending, the last infinite; shape ``[b]``."""
    counts: Numbers
    """Count in each bucket and interval; shape ``[b, n - 1]``."""
    sums: Numbers
    """Sums of what was counted, in each interval; shape ``[n - 1]``."""


class Scrapes:
    """Metrics at some moments, oldest first."""

    def __init__(
        self,
        source: str,
        samples: Mapping[_Key, Mapping[float, float]],
        *,
        infos: Mapping[str, Mapping[str, str]] | None = None,
        started: float | None = None,
    ) -> None:
        """``samples``: what was seen of each series, by moment in seconds; with one moment when the server ``started``.

        Raises WorkloadError for too few.
        """
        self.source = source
        self.infos = infos or {}
        """Metrics whose labels are what they say (``vllm:cache_config_info``), and the newest labels of each."""
        self.is_since_start = started is not None
        """There is one scrape, and the first moment is the server's start."""
        seen_at = {moment for series in samples.values() for moment in series}
        moments = sorted(seen_at | ({started} if started is not None else set()))
        if len(moments) < 2:
            found = "one moment" if moments else "none of vLLM's metrics (vllm:...)"
            raise WorkloadError(source, 0, f"holds {found}: rates need two scrapes or more, or a range of Prometheus'")
        self.begin = moments[0]
        """The first moment, in seconds of a clock."""
        self.times = np.array(moments) - moments[0]
        """Seconds since the first; shape ``[n]``."""
        self._moments = np.array(moments)
        self._series: dict[str, dict[tuple[str, str], Mapping[float, float]]] = {}
        for (name, part, engine), seen in samples.items():
            self._series.setdefault(name, {})[part, engine] = seen
        for name, series in self._series.items():
            if len(series) * len(moments) > MOST_CELLS:
                many = f"holds {len(series):,} series of {name} at {len(moments):,} moments"
                raise WorkloadError(source, 0, f"{many}: ask for one job or one model, or for fewer moments")

    def __contains__(self, name: str) -> bool:
        return name in self._series

    def _columns(self, name: str) -> Iterator[tuple[str, Numbers]]:
        """Part and values of a counter, one engine after the other; where a moment has none, what was seen last."""
        for (part, _), seen in self._series.get(name, {}).items():
            yield part, self._column(seen)

    def _column(self, seen: Mapping[float, float]) -> Numbers:
        column = np.full(len(self._moments), np.nan)
        column[np.searchsorted(self._moments, list(seen))] = list(seen.values())
        last = np.where(np.isnan(column), 0, np.arange(len(column)))
        return column[np.maximum.accumulate(last)]

    def _gauges(self, name: str) -> Iterator[tuple[str, str, Numbers]]:
        """Part, engine and values of a gauge; an engine that has ended says nothing any more: NaN."""
        for (part, engine), seen in self._series.get(name, {}).items():
            moments = sorted(seen)
            known = self._moments < moments[-1] + max(np.diff(moments), default=0.5)
            yield part, engine, np.where(known, self._column(seen), np.nan)

    @property
    def num_engines(self) -> int:
        """The number of engines that say at once how many requests they run; 1 where none does."""
        by_engine: dict[str, npt.NDArray[np.bool_]] = {}
        for _, engine, column in self._gauges("vllm:num_requests_running"):
            by_engine[engine] = by_engine.get(engine, np.zeros(len(column), bool)) | ~np.isnan(column)
        return max(int(sum(by_engine.values(), np.zeros(1, np.int64)).max()), 1)

    def gauge(self, name: str, *, mean: bool = False) -> Numbers:
        """The sum over all engines, or their mean; shape ``[n]``, 0 where nothing is known."""
        columns = [column for *_, column in self._gauges(name)]
        if not columns:
            return np.zeros(len(self.times))
        sums: Numbers = np.nansum(columns, axis=0)
        return sums / np.maximum((~np.isnan(columns)).sum(axis=0), 1) if mean else sums

    def by_engine(self, name: str) -> dict[str, Numbers]:
        """A gauge of each engine; NaN where it says nothing."""
        found: dict[str, Numbers] = {}
        for _, engine, column in self._gauges(name):
            known = found.setdefault(engine, np.full(len(self.times), np.nan))
            found[engine] = np.where(np.isnan(known), column, known + np.nan_to_num(column))
        return found

    def last_by_part(self, name: str) -> dict[str, float]:
        """What a gauge said last, of each of its parts, of all engines."""
        found: dict[str, float] = {}
        for (part, _), seen in self._series.get(name, {}).items():
            found[part] = found.get(part, 0.0) + seen[max(seen)]
        return found

    def first(self, name: str) -> float:
        """What a counter had reached at the first moment, all parts and engines added."""
        return sum((seen[min(seen)] for seen in self._series.get(name, {}).values()), 0.0)

    def as_long_as(self, seconds: float) -> Scrapes:
        """The same for so long: requests as all were since the server's start, at the pace of tokens meanwhile.

        Raises WorkloadError where none has ended yet.
        """
        ended = sum(self.last_by_part("vllm:request_success_total").values())
        tokens = sum(self.last_by_part("vllm:generation_tokens_total").values())
        if not ended or not tokens:
            raise WorkloadError(self.source, 0, "no request has ended since the server's start: lengths are unknown")
        own = float(self.times[-1])
        share = float(self.rise("vllm:generation_tokens_total").sum()) / own * seconds / tokens
        samples: dict[_Key, dict[float, float]] = {}
        for name, series in self._series.items():
            for (part, engine), seen in series.items():
                first, last = seen[min(seen)], seen[max(seen)]
                grows = 0.0 if self.is_since_start or "waiting" not in name else (last - first) / own * seconds
                then = (0.0, last * share) if name.endswith(_COUNTED) else (first, first + grows)
                samples[name, part, engine] = {0.0: then[0], seconds: then[1]}
        return Scrapes(self.source, samples, infos=self.infos)

    @property
    def has_restarted(self) -> bool:
        """Whether a counter of requests or tokens has begun again from 0."""
        names = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:request_success_total")
        columns = (column for name in names for _, column in self._columns(name))
        return any(bool((np.diff(column[~np.isnan(column)]) < 0).any()) for column in columns)

    def part_means(self, name: str) -> dict[str, float]:
        """The mean of each part of a gauge over time, of all engines."""
        means: dict[str, float] = {}
        for part, _, column in self._gauges(name):
            means[part] = means.get(part, 0.0) + float(np.nan_to_num(column).mean())
        return means

    def parts(self, name: str) -> dict[str, Numbers]:
        """The rise of each part of a counter between two moments, of all engines; shape ``[n - 1]`` each."""
        rises: dict[str, Numbers] = {}
        for part, column in self._columns(name):
            rises[part] = rises.get(part, np.zeros(len(self.times) - 1)) + _rises(column)
        return rises

    def rise(self, name: str) -> Numbers:
        """The rise of a counter between two moments, all parts and engines added; shape ``[n - 1]``."""
        return sum(self.parts(name).values(), np.zeros(len(self.times) - 1))

    def histogram(self, name: str) -> Histogram:
        """What a histogram counted between two moments; buckets that name no bound are left out."""
        rises: dict[float, Numbers] = {}
        for part, rise in self.parts(f"{name}_bucket").items():
            bound = _number(part)  # 5 and 5.0 are one: Prometheus writes the second since version 3
            if bound is not None:
                rises[bound] = rises.get(bound, 0.0) + rise
        bounds = np.array(sorted(rises))
        at_most = np.stack([rises[bound] for bound in bounds]) if len(bounds) else np.zeros((0, len(self.times) - 1))
        return Histogram(bounds, np.diff(at_most, axis=0, prepend=0.0).clip(0), self.rise(f"{name}_sum"))

    def mean(self, name: str) -> float | None:
        """The mean of a histogram over all of the time; None if nothing was counted."""
        count = float(self.rise(f"{name}_count").sum())
        return float(self.rise(f"{name}_sum").sum()) / count if count else None


def _rises(column: Numbers) -> Numbers:
    """A counter that falls has begun again: then it has risen from 0. What is there from the start has not risen."""
    steps = np.diff(column)
    steps = np.where(steps < 0, column[1:], steps)
    return np.nan_to_num(steps)


# ---------------------------------------------------------------------------------------------------------------------
# Reading: text of scrapes, or Prometheus' JSON.


class ScrapedText(NamedTuple):
    """A text that holds scrapes, answers of Prometheus', or lines of vLLM's log."""

    source: str
    data: bytes
    at: float | None = None
    """When it was scraped, in Unix seconds, where it does not say so itself."""
    replica: str = ""
    """The server that it is of, where there are several."""


_HELD = re.compile(rb"^vllm:\w|\"vllm:", re.MULTILINE)
_WHEN = re.compile(
    rb"^(?:# scraped_at |\d{4}-\d\d-\d\d[T ][\d:.]+\s*$|vllm:[^\n]*[ \t]\S+[ \t]\d{10,16}[ \t]*$)", re.MULTILINE
)


def has_scrapes(data: bytes) -> bool:
    """Whether a text holds metrics of vLLM's, or lines of its log that say the same."""
    return _HELD.search(data) is not None or has_stats_lines(data.decode("utf-8", "replace"))


def says_when(data: bytes) -> bool:
    """Whether a text says itself when it was scraped."""
    return (
        data.lstrip()[:1] in b"{[" or _WHEN.search(data) is not None or has_stats_lines(data.decode("utf-8", "replace"))
    )


def read_scrapes(data: bytes, source: str, model_name: str | None = None) -> Scrapes:
    """Read any form. Raises WorkloadError; ConfigError if several models are served and none is named."""
    return scrapes_of([ScrapedText(source, data)], source, model_name)


def scrapes_of(
    texts: Sequence[ScrapedText], source: str, model_name: str | None = None, *, is_one_enough: bool = False
) -> Scrapes:
    """The same of several texts together; ``is_one_enough``: one scrape will do, and counts since the server's start.

    Of a server with one model, or whose model is named. Raises as :func:`read_scrapes`.
    """
    samples: dict[_Key, dict[float, float]] = {}
    models: set[str] = set()
    infos: dict[str, tuple[float, float, Mapping[str, str]]] = {}
    for each, (name, labels, moment, value) in _samples_of(texts):
        model = labels.get("model_name", "")
        models.add(model)
        if model_name is not None and model not in (model_name, ""):
            continue
        if name.endswith("_info") and (name not in infos or (moment, value) >= infos[name][:2]):
            infos[name] = moment, value, labels
        part = next((labels[own] for own in _OWN if own in labels), "")
        where = [f"{key}={labels[key]}" for key in sorted(labels) if key not in _OWN]
        engine = ",".join([*where, *([f"replica={each.replica}"] if each.replica else [])])
        series = samples.setdefault((_NOW_CALLED.get(name, name), part, engine), {})
        series[moment] = value
        if len(samples) > _MOST_SERIES:
            raise WorkloadError(source, 0, f"holds more than {_MOST_SERIES:,} series: ask for one job or one model")
    named = sorted(filter(None, models))
    if model_name is None and len(named) > 1:
        raise ConfigError("model_name", "", f"{len(named)} models are served: name one of {', '.join(named[:6])}")
    if model_name is not None and model_name not in models:
        raise ConfigError("model_name", model_name, f"there is: {', '.join(named[:6]) or 'none'}")
    moments = {moment for series in samples.values() for moment in series}
    newest = {name: labels for name, (*_, labels) in infos.items()}
    if not (is_one_enough and len(moments) == 1):
        return Scrapes(source, samples, infos=newest)
    (now,) = moments
    begun = next(filter(None, (_started(each) for each in texts)), now - _UNKNOWN_LIFE_S)
    begun = begun if begun < now else now - _UNKNOWN_LIFE_S
    for (name, _, _), series in samples.items():
        if name.endswith(_COUNTED):
            series[begun] = 0.0
    return Scrapes(source, samples, infos=newest, started=begun)


def _started(text: ScrapedText) -> float | None:
    """When the server says that its process began."""
    found = _STARTED.search(text.data.decode("utf-8", "replace"))
    return _finite(found[1]) if found else None


def _samples_of(texts: Sequence[ScrapedText]) -> Iterator[tuple[ScrapedText, _Sample]]:
    for each in texts:
        for sample in _samples_in(each.data.decode("utf-8", "replace"), each.source, each.at):
            yield each, sample


_Sample = tuple[str, Mapping[str, str], float, float]


def _samples_in(text: str, source: str, at: float | None) -> Iterator[_Sample]:
    if has_stats_lines(text):
        return stats_samples(text)
    if text.lstrip().startswith(("{", "[")):
        return _samples_of_answers(text, source)
    return _samples_of_texts(text, source, at)


def _samples_of_texts(text: str, source: str, at: float | None) -> Iterator[_Sample]:
    scraped = at
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            found = _SCRAPED.fullmatch(line)
            scraped = float(found[1]) if found else scraped
            continue
        date = _DATE.fullmatch(line) if line[:1].isdigit() else None
        if date is not None:
            scraped = datetime.fromisoformat(f"{date[1]}T{date[2]}").replace(tzinfo=UTC).timestamp()
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            continue
        moment = scraped if sample[4] is None else int(sample[4]) / 1e3
        if moment is None:
            fix = "says no time of its scrape: write a line `# scraped_at UNIX_SECONDS` before each"
            raise WorkloadError(source, number, fix)
        value = _finite(sample[3])
        if value is not None:
            yield sample[1], dict(_LABEL.findall(sample[2] or "")), moment, value


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if isnan(value) else value


def _finite(text: str) -> float | None:
    """A sample; None if it is no number that can be added up."""
    value = _number(text)
    return None if value is None or isinf(value) else value


def _samples_of_answers(text: str, source: str) -> Iterator[_Sample]:
    for result in _results(text, source):
        if not isinstance(result, dict) or not isinstance(result.get("metric"), dict):
            continue
        labels = {str(key): str(value) for key, value in result["metric"].items()}
        name = labels.pop("__name__", "")
        if not name.startswith("vllm:"):
            continue
        pairs = result.get("values") or ([result["value"]] if "value" in result else [])
        for pair in pairs if isinstance(pairs, list) else ():
            if isinstance(pair, list) and len(pair) == 2:
                moment, value = _moment(pair[0]), _finite(str(pair[1]))
                if moment is not None and value is not None:
                    yield name, labels, moment, value


def _moment(value: object) -> float | None:
    """Unix seconds; None if they are none."""
    return float(value) if isinstance(value, int | float) and 0 <= value < _MOST_SECONDS else None


def _results(text: str, source: str) -> Iterator[Any]:
    """The results of one answer, of a list of them, or of one in each line."""
    try:
        answers: Iterable[Any] = [msgspec.json.decode(text)]
    except BAD_JSON:
        try:
            answers = [msgspec.json.decode(line) for line in text.splitlines() if line.strip()]
        except BAD_JSON as error:
            raise WorkloadError(source, 0, f"is no JSON of Prometheus': {error}") from None
    for answer in answers:
        for each in answer if isinstance(answer, list) else [answer]:
            if isinstance(each, dict) and each.get("status") == "error":
                raise WorkloadError(source, 0, f"Prometheus answered with an error: {each.get('error')}")
            data = each.get("data") if isinstance(each, dict) else None
            found = (
                data.get("result") if isinstance(data, dict) else each.get("result") if isinstance(each, dict) else None
            )
            yield from found if isinstance(found, list) else ()
