"""Classes of requests in a question: bounds of one class, and which class each request of a workload is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

import msgspec

from tokenyard.errors import ConfigError
from tokenyard.explain.render.table import column_of
from tokenyard.explain.report.classes import bounds_of, class_labels, require_classes, slos_by_class
from tokenyard.explain.report.slo import SLO
from tokenyard.workload.record import Workload

_OF_REQUESTS = {
    "prompt_tokens": "num_prompt_tokens",
    "priority": "priority",
    "lora_name": "lora_name",
    "job_id": "job_id",
    "predicted_output_tokens": "predicted_output_tokens",
}
"""Columns of a replay's rows that are known before it -> the attribute of a request."""


def read_bounds(given: Sequence[Sequence[str]], by: str | None) -> tuple[SLO, ...]:
    """Bounds of ``--slo``, those of a class with its name. Raises ConfigError for one of a class without ``--by``."""
    slos = slos_by_class(given)
    named = next(filter(None, slos), None)
    if by is None and named is not None:
        raise ConfigError("slo", str(slos[named][0]), "say what it is a class of: --by priority, for example")
    return tuple(slo for several in slos.values() for slo in several)


def classes_in(workload: Workload, by: str) -> dict[str, str]:
    """Request id -> its class, as a run's rows will have it.

    Raises ConfigError for a column that no request has, or that is known only afterwards.
    """
    if by in _OF_REQUESTS:
        values = [attrgetter(_OF_REQUESTS[by])(each) for each in workload]
    else:
        known = dict.fromkeys(name for each in workload for name in each.meta)
        if by not in known:
            raise ConfigError("by", by, f"requests have no such column: {', '.join((*_OF_REQUESTS, *known))}")
        values = [each.meta.get(by) for each in workload]
    labels = class_labels(column_of(values), by)
    return dict(zip((each.request_id for each in workload), labels.tolist(), strict=True))


def bounds_by_class(slos: Sequence[SLO], workload: Workload, by: str) -> tuple[SLO, ...]:
    """Every bound with the class that it is of: one without is of every class that has none of its own.

    Raises ConfigError for a class that no request of the workload is of.
    """
    names = sorted(set(classes_in(workload, by).values()))
    grouped = grouped_by_class(slos)
    require_classes(grouped, names, by)
    return tuple(msgspec.structs.replace(slo, of=name) for name in names for slo in bounds_of(name, grouped))


def grouped_by_class(slos: Sequence[SLO]) -> Mapping[str, Sequence[SLO]]:
    """Class -> its bounds; those of the empty name are of every class that has none of its own."""
    grouped: dict[str, list[SLO]] = {}
    for slo in slos:
        grouped.setdefault(slo.of, []).append(slo)
    return grouped
