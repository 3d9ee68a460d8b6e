"""Numbers, made readable."""

from __future__ import annotations

from collections.abc import Collection, Mapping

GIB = 1 << 30
"""Bytes of a GiB."""


def count(value: float | None) -> str:
    """12,031; a dash if it is not known."""
    return "-" if value is None else f"{value:,.0f}"


def count_of(number: int, noun: str) -> str:
    """12,031 requests; 1 request."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def short_count(value: int) -> str:
    """950, 342K, 1.5M."""
    number, unit = float(value), ""
    for larger in ("K", "M", "G"):
        if number < 999.5:
            break
        number, unit = number / 1_000, larger
    return (f"{number:.1f}".removesuffix(".0") if unit and number < 9.95 else f"{number:,.0f}") + unit


def percent(share: float | None) -> str:
    """41.3 %."""
    return "-" if share is None else f"{100 * share:.1f} %"


def duration(seconds: float | None) -> str:
    """0.42 s, 17.3 s, 8 min 05 s, 2 h 14 min."""
    if seconds is None:
        return "-"
    if seconds < 100:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60:,} h {minutes % 60:02} min"


_UNIX_S = 1e9
"""Seconds from which on a clock is taken for Unix time, and not for one that began with the run."""


def moment(ts: float, start: float) -> str:
    """16:06:14 UTC of Unix time; of another clock 5 min 07 s, since ``start``."""
    if ts < _UNIX_S:
        return duration(ts - start)
    minutes, seconds = divmod(int(ts) % 86_400, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02} UTC"


def milliseconds(value: float | None, *, at_least: bool = False) -> str:
    """0.42 ms, 17.3 ms, 1.25 s, 717.3 s: at most ten characters, for a table; a sign before what it is ``at_least``.

    A dash for what is at least 0: that says nothing.
    """
    if value is None:
        return "never" if at_least else "-"
    if at_least:
        return "-" if value == 0 else f"\N{GREATER-THAN OR EQUAL TO}{milliseconds(value)}"
    number, unit = (value, "ms") if abs(value) < 1_000 else (value / 1_000, "s")
    size = abs(number)
    return f"{number:,.{2 if size < 10 else 1 if size < 1_000 else 0}f} {unit}"


def gigabytes(value: int) -> str:
    """20GB: binary gigabytes, as memory is sold."""
    size = value / GIB
    return f"{size:.0f}GB" if size >= 9.95 else f"{size:.1f}GB"


def shorten(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters, its end kept: the end of a path says most."""
    return text if len(text) <= width else "\N{HORIZONTAL ELLIPSIS}" + text[len(text) - width + 1 :]


_MANY = 9.0
"""A change above this share is worded as a factor."""


def signed(share: float) -> str:
    """-12.0 %, +3.1 %, 26 times."""
    return f"{100 * share:+.1f} %" if share < _MANY else f"{share + 1:,.0f} times"


def figure_label(name: str) -> str:
    """``ITL p99`` of ``itl_ms.p99``, as a report's JSON names it; ``batch TTFT p90`` of ``batch:ttft_ms.p90``."""
    if name == "outcomes.served":
        return "requests served"
    of_class, _, own = name.rpartition(":")
    figure, _, statistic = own.partition("_ms.")
    return f"{of_class} {figure.upper()} {statistic}".lstrip()


CLIENT_FIGURES = {"ttft_ms.p90": "TTFT p90", "tpot_ms.p90": "TPOT p90", "e2e_ms.p90": "E2E p90"}
"""What clients feel, by the names of a report's figures."""
_WORSE = {
    "ttft_ms": ("first tokens", "come later"),
    "tpot_ms": ("further tokens", "come more slowly"),
    "e2e_ms": ("answers", "end later"),
}
_FELT = 0.01
"""Share from which on a change is one for the better or the worse."""


def changes_for_clients(changes: Mapping[str, float | None], unsure: Collection[str] = ()) -> str:
    """What changes for clients, of shares by figure: the better first, and what gets worse beside it in words.

    ``TTFT p90 -60.0 %, but answers end later (E2E p90 +21.0 %)``. Empty where nothing is known. Of figures that are
    ``unsure`` it says "may": ``TTFT p90 may be -60.0 %, but answers may end later (E2E p90 +21.0 %)``.
    """
    known = {name: share for name in CLIENT_FIGURES if (share := changes.get(name)) is not None}
    may = {name: " may" if name in unsure and abs(share) >= _FELT else "" for name, share in known.items()}
    sizes = {name: signed(share).replace("times", "times as long") for name, share in known.items()}
    said = {name: f"{CLIENT_FIGURES[name]}{may[name]}{' be' * bool(may[name])} {size}" for name, size in sizes.items()}
    worse = [name for name, share in known.items() if share >= _FELT]
    if not worse or not any(share <= -_FELT for share in known.values()):
        return _listed(list(said.values()))
    rest = _listed([text for name, text in said.items() if name not in worse])
    words = []
    for name in worse:
        what, happens = _WORSE[name.partition(".")[0]]
        words.append(f"{what}{may[name]} {happens} ({CLIENT_FIGURES[name]} {sizes[name]})")
    return f"{rest}, but {_listed(words)}"


def _listed(texts: list[str]) -> str:
    return " and ".join((", ".join(texts[:-1]), texts[-1])) if len(texts) > 1 else "".join(texts)
