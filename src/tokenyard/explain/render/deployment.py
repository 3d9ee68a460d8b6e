"""What a replay stood for, in a terminal: sizes, limits, and what was assumed or passed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.render.tables import table_of
from tokenyard.printable import plain
from tokenyard.trace.format.deployment import Deployment

__all__ = ["deployment_table"]


def deployment_table(deployment: Deployment) -> Table | None:
    """The deployment; None where the trace does not tell of one."""
    if deployment.num_gpu_blocks is None:
        return None
    table = table_of(Column(style="bright_black", no_wrap=True), Column(), header=False)
    for name, said in (
        ("vLLM", f"{plain(deployment.vllm_version or 'unknown')}: its decisions, and its defaults where nobody says"),
        ("weights", _weights(deployment)),
        ("KV", _kv(deployment)),
        ("limits", _limits(deployment)),
        ("step times", _step_times(deployment)),
    ):
        if said is not None:
            table.add_row(name, Text(said))
    for name, style, lines in (
        ("assumed", "", [str(each) for each in deployment.assumed]),
        ("used", "", [" ".join(deployment.used)] if deployment.used else []),
        ("no effect", "", deployment.without_effect),
        ("ignored", "yellow", deployment.ignored),
    ):
        if lines:
            table.add_row(name, _lines(lines, style))
    return table


def _lines(lines: Iterable[str], style: str) -> Text:
    return Text("\n".join(plain(line) for line in lines), style)


def _step_times(deployment: Deployment) -> str | None:
    """Where they come from; None if the steps were really taken."""
    if deployment.step_time is None:
        return None
    return f"{plain(deployment.step_time)}; error: {deployment.step_time_error or 'unknown'}"


def _weights(deployment: Deployment) -> str | None:
    """None where nobody said; a trace of a real server does not."""
    if deployment.weight_gib is None:
        return None
    engines = deployment.data_parallel_size or 1
    stages = deployment.pipeline_parallel_size or 1
    gpus = (deployment.tensor_parallel_size or 1) * engines * stages
    each = " on each of them" if gpus > 1 else ""
    if stages > 1:
        each = " on those that have the most"
    many = f" in {engines:,} engines" if engines > 1 else ""
    many += f" of {stages:,} stages" if engines > 1 and stages > 1 else f" in {stages:,} stages" * (stages > 1)
    return f"{deployment.weight_gib:,.1f} GiB of {deployment.weight_dtype}{each}, {gpus} GPU{'s' * (gpus > 1)}{many}"


def _kv(deployment: Deployment) -> str:
    alike = Counter(map(plain, deployment.kv_groups))
    named = "; ".join(f"{count} x {group}" if count > 1 else group for group, count in alike.items())
    groups = f": {named}" if len(deployment.kv_groups) > 1 else ""
    each = "in each engine, " if (deployment.data_parallel_size or 1) > 1 else ""
    size = "" if deployment.kv_gib is None else f", {deployment.kv_gib:,.1f} GiB of {deployment.kv_dtype}"
    return (
        f"{each}{deployment.kv_tokens:,} tokens in {deployment.num_gpu_blocks:,} blocks of {deployment.block_size}"
        f"{size}{groups}"
    )


def _limits(deployment: Deployment) -> str:
    ahead = "a step ahead" if deployment.async_scheduling else "one step at a time"
    return (
        f"{deployment.max_num_batched_tokens:,} tokens a step, {deployment.max_num_seqs:,} sequences, "
        f"{deployment.max_model_len:,} tokens each, {ahead}"
    )
