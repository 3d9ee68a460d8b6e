"""A diagnosis in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.answer.remedies import Remedy
from tokenyard.explain.render.parts import print_section, table_of
from tokenyard.questions.doctor.diagnosis import Diagnosis
from tokenyard.questions.doctor.treatment import Treatment, effects_of
from tokenyard.redaction import plain
from tokenyard.units import changes_for_clients, count, milliseconds, percent, signed


def print_diagnosis(told: Diagnosis, console: Console) -> None:
    """The verdict, what would help, what it rests on, and what is not known."""
    console.print(Text(plain(told.answer.sentence), "bold"))
    if told.answer.sure is not None:
        console.print(Text(f"How sure: {told.answer.sure}."))
    if told.answer.remedies:
        print_section(console, "What would help", *(Text(remedy_in_words(told, each)) for each in told.answer.remedies))
    print_section(console, _looked_at(told), _figures(told))
    if told.also:
        print_section(console, "Besides", *(Text(plain(each)) for each in told.also))
    if told.treatment is not None:
        _print_treatment(console, told.treatment)
    elif told.problem is not None:
        print_section(console, "Nothing was replayed", Text(plain(told.problem)))
    unknown = [Text(plain(each)) for each in (*told.assumed, *told.unknown)]
    print_section(console, "What this cannot tell", *unknown)
    print_section(console, "A trace does")
    for each in told.commands:
        console.print(f"  {plain(each)}", markup=False, soft_wrap=True)


def remedy_in_words(told: Diagnosis, remedy: Remedy) -> str:
    """Return a remedy with what it did when it was replayed, and its price."""
    if not remedy.is_tried:
        return f"not tried: {plain(remedy.title)}"
    effects = [] if told.treatment is None else effects_of(told.treatment, remedy)
    unsure = [each.figure for each in effects if not each.is_sure]
    did = changes_for_clients({each.figure: each.change for each in effects}, unsure)
    price = f"; price: {remedy.price}" if remedy.price else ""
    return plain(f"replayed: {remedy.title}{f': {did}' * bool(did)}{price}")


def _looked_at(told: Diagnosis) -> str:
    seen = told.seen
    engines = f", {seen.engines} engines" if seen.engines > 1 else ""
    if seen.is_since_start:
        return f"{plain(told.source)}: one scrape{engines}"
    return f"{plain(told.source)}: {seen.scrapes:,} looks in {seen.seconds:,.0f} s{engines}"


def _figures(told: Diagnosis) -> Table:
    seen = told.seen
    table = table_of(Column(""), Column("", justify="right"))
    first = None if seen.hit_rate_before is None else f", {percent(seen.hit_rate_before)} before"
    ended = None if seen.finished is None else f"{count(seen.finished)} in {seen.seconds:,.0f} s"
    lengths = (seen.mean_prompt_tokens, seen.mean_output_tokens)
    for name, value in (
        ("running", f"{count(seen.running)} now, {count(seen.running_max)} at most"),
        ("waiting", f"{count(seen.waiting)} now, {count(seen.waiting_max)} at most"),
        ("deferred of these", None if not seen.deferred else count(seen.deferred)),
        (
            "KV in use",
            None if seen.kv_use is None else f"{percent(seen.kv_use)} now, {percent(seen.kv_use_max)} at most",
        ),
        ("prefix hits", None if seen.hit_rate is None else f"{percent(seen.hit_rate)}{first or ''}"),
        ("output tokens/s", None if seen.output_tokens_per_s is None else f"{seen.output_tokens_per_s:,.0f}"),
        ("tokens a step", None if seen.tokens_per_step is None else f"{seen.tokens_per_step:,.0f}"),
        ("requests ended", ended),
        ("prompt, output", None if None in lengths else f"{count(lengths[0])}, {count(lengths[1])} tokens"),
        ("preemptions", count(seen.preemptions) if seen.preemptions else None),
        ("queue, mean", _seconds(seen.queue_s)),
        ("TTFT, mean", _seconds(seen.ttft_s)),
        ("TPOT, mean", _seconds(seen.tpot_s)),
        ("E2E, mean", _seconds(seen.e2e_s)),
    ):
        if value is not None:
            table.add_row(name, value)
    return table


def _seconds(value: float | None) -> str | None:
    return None if value is None else milliseconds(1e3 * value)


def _print_treatment(console: Console, treatment: Treatment) -> None:
    table = table_of(Column(""), *(Column(each, justify="right") for each in ("measured", "replayed", "off by")))
    for each in treatment.figures:
        values = (each.measured, each.replayed)
        shown = [milliseconds(value) if each.figure.endswith("mean") else percent(value) for value in values]
        table.add_row(each.figure, *shown, signed(each.off))
    scaled = treatment.step_time_factors
    notes = [f"{count(treatment.requests)} requests: {treatment.made_of}."]
    if scaled is not None:
        notes.append(f"Step times are scaled by {scaled}, so that TPOT is met.")
    if not treatment.is_of_the_time:
        notes.append("Requests take too long beside the time watched: TTFT and E2E decide nothing (--last 60s).")
    if not treatment.holds:
        why = "It waits for something else" if not treatment.is_agreed else "It is off by more than a quarter"
        notes.append(f"{why}: nothing is advised from it.")
    notes.append(f"The replay's own answer: {plain(treatment.answer.sentence)}")
    print_section(console, "Replayed", table, *(Text(each) for each in notes))
