"""The documents name every field that there is."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tokenyard.core.sched.outcomes import OutcomeKind, Reason
from tokenyard.explain.classifier import Bucket, StepReason
from tokenyard.explain.report.report import Report
from tokenyard.trace.schema import STEP_EVENTS, KVNumbers, MultiModalSpan, PreemptionNumbers, Refusal, RequestRecord

DOCS = Path(__file__).resolve().parents[3] / "docs"


def words_of(document: str) -> set[str]:
    """Every name that stands in code style."""
    spans = re.findall(r"`([^`\n]+)`", document)
    return {word for span in spans for word in re.findall(r"[A-Za-z_][\w-]*", span)}


def section(document: str, event: str) -> str:
    """The part under an event's heading."""
    return re.split(r"^#{2,3} ", document.split(f"### `{event}`", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("event", STEP_EVENTS)
def test_every_field_of_an_event_is_explained(event: str) -> None:
    words = words_of(section((DOCS / "trace-format.md").read_text(encoding="utf-8"), event))
    assert {field.name for field in msgspec.structs.fields(STEP_EVENTS[event])} <= words


def test_every_field_of_the_other_records_is_explained() -> None:
    words = words_of((DOCS / "trace-format.md").read_text(encoding="utf-8"))
    for record in (RequestRecord, MultiModalSpan, KVNumbers, Refusal, PreemptionNumbers):
        assert {field.name for field in msgspec.structs.fields(record)} <= words


def test_every_way_in_which_the_admission_pass_ends_is_named() -> None:
    words = words_of(section((DOCS / "trace-format.md").read_text(encoding="utf-8"), "admission_outcome"))
    of_requests = {OutcomeKind.SKIPPED, OutcomeKind.NOT_SCHEDULED}  # they stand in lists of their own
    assert {kind.value for kind in OutcomeKind if kind not in of_requests} <= words


def names_in(struct: type[msgspec.Struct]) -> set[str]:
    """Field names of a record and of the records in it."""
    names: set[str] = set()
    for field in msgspec.structs.fields(struct):
        names.add(field.name)
        kinds = [field.type, *getattr(field.type, "__args__", ())]
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                names |= names_in(kind)
    return names


def test_every_field_of_the_report_is_explained() -> None:
    words = words_of((DOCS / "report.md").read_text(encoding="utf-8"))
    assert names_in(Report) <= words


def test_every_bucket_and_reason_is_explained() -> None:
    part = (DOCS / "report.md").read_text(encoding="utf-8").split("## Buckets and reasons", 1)[1]
    assert {*Bucket, *StepReason} <= words_of(part)


def test_every_recorded_reason_is_explained() -> None:
    assert {*Reason} <= words_of((DOCS / "reasons.md").read_text(encoding="utf-8"))
