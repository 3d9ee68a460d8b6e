"""A sweep as a page that needs nothing else: parallel coordinates, the front, a table; by mouse or keyboard.

every line is a variant, every axis a setting that varies or a figure; better is up

A part of an axis that is marked leaves the variants that lie in it. Where variants have traces, two of them that are
chosen lead to the viewer's Compare.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

import msgspec

from tokenyard.questions.sweeping.rows import TRACES, Row, Setting, settings_in_words

_WIDTH, _HEIGHT = 1080, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 60, 56, 20
_NARROWEST = 100
"""Pixels between two axes where the page is narrower than they are."""
_GRIP = 18
"""Pixels on each side of an axis where it can be marked."""
_KEY_STEP = 0.05
"""Share of an axis by which a key moves an end of a mark, on an axis of a figure."""
_MOST_ROWS = 5000
_MOST_TICKS = 12
_LONG = 14
"""Letters of a name that are one line."""
_TEMPLATE = Path(__file__).with_name("page.html")


class Measure(msgspec.Struct, frozen=True):
    """A figure that variants are compared by."""

    name: str
    """Name of one of a row's figures, or of a field of the row itself."""
    label: str
    unit: str
    less_is_better: bool

    def of(self, row: Row) -> float | None:
        """Its value; None where the row has none."""
        value = row.figures.get(self.name) if "." in self.name else getattr(row, self.name)
        return None if value is None else float(value)


MEASURES = (
    Measure("ttft_ms.p90", "TTFT p90", "ms", True),
    Measure("tpot_ms.p90", "TPOT p90", "ms", True),
    Measure("e2e_ms.p90", "E2E p90", "ms", True),
    Measure("throughput.output_tokens_per_s", "tokens", "/s", False),
    Measure("goodput.requests_per_s", "goodput", "/s", False),
    Measure("cost_per_hour", "cost", "/h", True),
)
"""Axes of figures, as far as rows have them."""


def front_of_measures(rows: Sequence[Row], measures: Sequence[Measure]) -> set[int]:
    """Rows, by number, that no other is at least as good as in every measure and better in one."""
    points = [
        (i, tuple(_badness(measure, row) for measure in measures)) for i, row in enumerate(rows) if row.is_measured
    ]
    return {
        i
        for i, mine in points
        if not any(other != mine and all(o <= m for o, m in zip(other, mine, strict=True)) for _, other in points)
    }


def _badness(measure: Measure, row: Row) -> float:
    value = measure.of(row)
    return float("inf") if value is None else value if measure.less_is_better else -value


class _Axis(msgspec.Struct, frozen=True):
    """Where values stand on it: 0 is its lower end, 1 its upper one."""

    label: str
    places: dict[int, float]
    """Row, by number -> place."""
    ticks: list[tuple[float, str]]
    column: str
    """The heading of its column in the table."""
    step: float = _KEY_STEP
    """Distance between places that differ."""
    values: tuple[str, ...] = ()
    """The values of a setting, at equal distances from 0 to 1."""
    ends: tuple[float, float] | None = None
    """Values at 0 and at 1, of a figure."""


def page(workload: str, rows: Sequence[Row], directory: Path | None = None) -> str:
    """The page of a sweep of ``workload``; ``directory`` is where it is kept, absolute, if it has traces."""
    shown = rows[:_MOST_ROWS]
    measures = [each for each in MEASURES if any(each.of(row) is not None for row in shown)]
    names = list(dict.fromkeys(name for row in shown for name in row.settings))
    front = front_of_measures(shown, measures)
    varied = [name for name in names if len({repr(row.settings.get(name)) for row in shown}) > 1]
    differing = [each for each in measures if len({each.of(row) for row in shown} - {None}) > 1]
    axes = [*(_setting_axis(name, shown) for name in varied), *(_measure_axis(each, shown) for each in differing)]
    failed = sum(row.problem is not None for row in shown)
    said = [
        f"{len(rows):,} variants",
        f"{len(front):,} on the front: none is as good in every figure and better in one",
    ]
    if failed:
        said.append(f"{failed:,} could not be replayed")
    if len(rows) > len(shown):
        said.append(f"the first {len(shown):,} are shown")
    traces = directory / TRACES if directory is not None and any(row.traces for row in shown) else None
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(f"Sweep: {workload}"),
        said=escape("; ".join(said) + "."),
        least=_LEFT + _RIGHT + _NARROWEST * max(len(axes) - 1, 1),
        drawing="\n".join(_drawing(axes, shown, front)),
        head="".join(_head(names, measures, has_traces=traces is not None)),
        body="\n".join(_body(names, measures, shown, front, axes, traces)),
        command=escape(f"tokenyard view {shlex.quote(str(directory))}"),
        hidden="" if traces is not None else " hidden",
    )


# ---- axes


def _setting_axis(name: str, rows: Sequence[Row]) -> _Axis:
    """Values at equal distances: numbers by size, the rest as they come."""
    values = list({repr(row.settings.get(name)): row.settings.get(name) for row in rows}.values())
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    rest = [value for value in values if isinstance(value, bool) or not isinstance(value, int | float)]
    ordered: list[Setting] = [*rest, *sorted(numbers)]
    span = max(len(ordered) - 1, 1)
    at = {repr(value): i / span for i, value in enumerate(ordered)}
    step = -(-len(ordered) // _MOST_TICKS)
    ticks = [(i / span, _word(value)) for i, value in enumerate(ordered) if i % step == 0 or i == len(ordered) - 1]
    places = {i: at[repr(row.settings.get(name))] for i, row in enumerate(rows)}
    return _Axis(name, places, ticks, name, 1 / span, tuple(map(_word, ordered)))


def _measure_axis(measure: Measure, rows: Sequence[Row]) -> _Axis:
    values = {i: value for i, row in enumerate(rows) if (value := measure.of(row)) is not None}
    low, high = min(values.values()), max(values.values())
    worst, best = (high, low) if measure.less_is_better else (low, high)
    span = best - worst
    ticks = [(share, _number(worst + share * span)) for share in (0.0, 0.5, 1.0)]
    places = {i: (value - worst) / span for i, value in values.items()}
    label = f"{measure.label}, {measure.unit}"
    return _Axis(label, places, ticks, label, ends=(worst, best))


def _word(value: Setting) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


# ---- the drawing


def _drawing(axes: Sequence[_Axis], rows: Sequence[Row], front: set[int]) -> Iterator[str]:
    gap = (_WIDTH - _LEFT - _RIGHT) / max(len(axes) - 1, 1)
    across = [_LEFT + gap * i for i in range(len(axes))]
    label = "Every line is a variant; better figures are up. The table below has the same."
    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="figure" aria-label="{label}">'
    for i in sorted((i for i, row in enumerate(rows) if row.is_measured), key=lambda row: row in front):
        points = [
            f"{x:.1f},{_up(axis.places[i]):.1f}" for x, axis in zip(across, axes, strict=True) if i in axis.places
        ]
        if len(points) > 1:
            kind = "line front" if i in front else "line"
            title = f"<title>{escape(settings_in_words(rows[i].settings))}</title>"
            yield f'<polyline class="{kind}" data-row="{i}" points="{" ".join(points)}">{title}</polyline>'
    for i, (x, axis) in enumerate(zip(across, axes, strict=True)):
        yield from _axis(i, axis, x)
    yield "</svg>"


def _axis(number: int, axis: _Axis, x: float) -> Iterator[str]:
    """An axis that can be marked, by dragging along it and by keys."""
    what = {"label": axis.label, "column": axis.column, "step": axis.step, "values": axis.values, "ends": axis.ends}
    told = escape(msgspec.json.encode(what).decode(), quote=True)
    yield f'<g class="bar" tabindex="0" role="group" data-axis="{number}" data-told="{told}">'
    box = f'x="{x - _GRIP:.1f}" y="{_up(1):.1f}" width="{2 * _GRIP}" height="{_up(0) - _up(1):.1f}"'
    yield f'<rect class="grip" {box}/>'
    yield f'<rect class="mark" x="{x - 6:.1f}" y="0" width="12" height="0"/>'
    yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{_up(1):.1f}" y2="{_up(0):.1f}"/>'
    yield from _label(axis.label, x)
    for place, text in axis.ticks:
        yield f'<text class="tick" x="{x - 6:.1f}" y="{_up(place) + 4:.1f}">{escape(text)}</text>'
    yield "</g>"


def _label(label: str, x: float) -> Iterator[str]:
    """Above an axis, in two lines where a name is long."""
    words = label.split("_")
    half = -(-len(words) // 2)
    lines = (
        [label] if len(label) <= _LONG else ["_".join(words[:half]) + "_" * (half < len(words)), "_".join(words[half:])]
    )
    for i, line in enumerate(each for each in lines if each):
        yield f'<text class="name" x="{x:.1f}" y="{_TOP - 32 + 14 * i}">{escape(line)}</text>'


def _up(place: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * place


# ---- the table


def _head(names: Sequence[str], measures: Sequence[Measure], *, has_traces: bool) -> Iterator[str]:
    if has_traces:
        yield '<th scope="col">compare</th>'
    for label in ("front", *names, *(f"{each.label}, {each.unit}" for each in measures), "bounds", "held by"):
        yield f'<th scope="col"><button type="button">{escape(label)}</button></th>'


def _body(
    names: Sequence[str],
    measures: Sequence[Measure],
    rows: Sequence[Row],
    front: set[int],
    axes: Sequence[_Axis],
    traces: Path | None,
) -> Iterator[str]:
    for i, row in enumerate(rows):
        cells = [] if traces is None else [_choice(row, traces)]
        cells += [_cell("yes" if i in front else "")]
        cells += [_cell(_word(row.settings[name]) if name in row.settings else "") for name in names]
        cells += [_figure(each.of(row)) for each in measures]
        cells += [_cell(row.problem or row.stopped or row.met_in_words), _cell(row.held_by or "")]
        kind = ' class="front"' if i in front else ""
        places = " ".join(f"{axis.places[i]:.4f}" if i in axis.places else "-" for axis in axes)
        yield f'<tr tabindex="0" data-row="{i}" data-places="{places}"{kind}>{"".join(cells)}</tr>'


def _choice(row: Row, traces: Path) -> str:
    """A box that chooses a variant with a trace; of several engines the first is shown."""
    if not row.traces:
        return "<td></td>"
    trace, name = (escape(each, quote=True) for each in (str(traces / row.traces[0]), settings_in_words(row.settings)))
    return f'<td><input type="checkbox" data-trace="{trace}" aria-label="compare {name}"></td>'


def _cell(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def _figure(value: float | None) -> str:
    return "<td></td>" if value is None else f'<td class="number" data-value="{value!r}">{_number(value)}</td>'
