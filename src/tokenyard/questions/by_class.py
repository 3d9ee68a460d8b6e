"""Classes of requests in a question: bounds of one class, and which class each request of a workload is of."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from operator import attrgetter

import msgspec

from tokenyard.arguments import given_text
from tokenyard.core.params import user_name
from tokenyard.errors import ConfigError
from tokenyard.explain.report.classes import (
    USER,
    Classes,
    bounds_of,
    class_labels,
    classes_of,
    require_classes,
    require_of_requests,
    slos_by_class,
)
from tokenyard.explain.slo import SLO
from tokenyard.explain.table import column_of
from tokenyard.sim.rows.rows import ReplayRows
from tokenyard.workload.logs.logged import KNOWN_NAMES
from tokenyard.workload.record import Workload

_FIELDS = (USER, "tier", "priority", "lora_name")
"""What columns of a log are read as, of whatever name."""
_OF_REQUESTS = {
    "prompt_tokens": "num_prompt_tokens",
    "priority": "priority",
    "lora_name": "lora_name",
    "job_id": "job_id",
    "predicted_output_tokens": "predicted_output_tokens",
}
"""Columns of a replay's rows that are known before it -> the attribute of a request."""


def read_bounds(given: Sequence[Sequence[str]], by: str | None) -> tuple[SLO, ...]:
    """Bounds of ``--slo``, those of a class with its name.

    Raises ConfigError for one of a class without ``--by``, and for one that no class can have.
    """
    slos = slos_by_class(given)
    named = next(filter(None, slos), None)
    if by is None and named is not None:
        raise ConfigError("slo", str(slos[named][0]), "say what it is a class of: §by priority, for example")
    if by is not None:
        require_of_requests(slos)
    return tuple(slo for several in slos.values() for slo in several)


def classes_in(workload: Workload, by: str) -> dict[str, str]:
    """Request id -> its class, as a run's rows will have it.

    Raises ConfigError for a column that no request has, or that is known only afterwards.
    """
    known = _columns(workload)
    by = column_called(by, known)
    if by in _OF_REQUESTS:
        values = [attrgetter(_OF_REQUESTS[by])(each) for each in workload]
    elif by == USER and by not in known:
        values = [user_name(each.job_id) or None for each in workload]
    else:
        if by not in known:
            raise ConfigError("by", by, f"requests have no such column: {', '.join((*_OF_REQUESTS, *known))}")
        values = [each.meta.get(by) for each in workload]
    labels = class_labels(column_of(values), by)
    return dict(zip((each.request_id for each in workload), labels.tolist(), strict=True))


def column_called(by: str, known: Container[str]) -> str:
    """The column that ``by`` means: the one of this name, else what a log's column of this name is read as.

    ``team`` of a log, for example, is ``user`` in its requests.
    """
    if by in known:
        return by
    return next((field for field in _FIELDS if by in KNOWN_NAMES[field]), by)


def require_column(by: str, workload: Workload) -> str:
    """The column of a run's rows that ``by`` means. Raises ConfigError for one that they will not have."""
    by = given_text("by", by, "give the name of a column, as a text")
    known = {USER, *ReplayRows([]).requests.columns, *_columns(workload)}
    column = column_called(by, known)
    if column not in known:
        raise ConfigError("by", by, f"requests have no such column: {', '.join((*_OF_REQUESTS, *_columns(workload)))}")
    return column


def _columns(workload: Workload) -> dict[str, None]:
    """What the requests say of themselves."""
    return dict.fromkeys(name for each in workload for name in each.meta)


def bounds_by_class(slos: Sequence[SLO], workload: Workload, by: str) -> tuple[SLO, ...]:
    """Every bound with the class that it is of: one without is of every class that has none of its own.

    Raises ConfigError for a class that no request of the workload is of.
    """
    names = sorted(set(classes_in(workload, by).values()))
    grouped = grouped_by_class(slos)
    require_classes(grouped, names, by)
    return tuple(msgspec.structs.replace(slo, of=name) for name in names for slo in bounds_of(name, grouped))


class ClassBounds(msgspec.Struct, frozen=True):
    """What classes of requests a report is about, and their bounds."""

    by: str
    """The column that says of which class a request is."""
    slos: tuple[SLO, ...]

    def classes_of(self, rows: ReplayRows, seconds: float | None) -> Classes:
        """The classes of a replay of the workload or of a part of it, in a run of so many seconds."""
        column, bounds = column_called(self.by, rows.requests), grouped_by_class(self.slos)
        return classes_of(rows.requests, rows.waits, column, slos=bounds, seconds=seconds, partial=True)


def grouped_by_class(slos: Sequence[SLO]) -> Mapping[str, Sequence[SLO]]:
    """Class -> its bounds; those of the empty name are of every class that has none of its own."""
    grouped: dict[str, list[SLO]] = {}
    for slo in slos:
        grouped.setdefault(slo.of, []).append(slo)
    return grouped
