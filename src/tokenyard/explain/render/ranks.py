"""The engines of one deployment side by side, in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Column, Table

from tokenyard.explain.render.tables import table_of
from tokenyard.explain.render.units import count, milliseconds, percent
from tokenyard.explain.report.ranks import RankShare

__all__ = ["ranks_table"]


def ranks_table(ranks: Sequence[RankShare]) -> Table:
    """A line for each engine; what nobody has is left out."""
    together = any(each.dummy_batches for each in ranks)
    names = ["requests", "of tokens", "busy", *(["dummies"] * together), "hits", "KV peak", "TTFT", "TPOT"]
    table = table_of(
        Column("rank", style="bright_black", no_wrap=True),
        *(Column(name, justify="right", no_wrap=True) for name in names),
    )
    for each in ranks:
        table.add_row(
            str(each.rank),
            count(each.requests),
            percent(each.output_tokens_share),
            percent(each.busy_share),
            *([count(each.dummy_batches or 0)] * together),
            percent(each.prefix_hit_rate),
            percent(each.peak_kv_use),
            milliseconds(each.ttft_ms.mean),
            milliseconds(each.tpot_ms.mean),
        )
    return table
