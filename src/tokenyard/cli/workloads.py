"""``tokenyard workloads``: what WORKLOAD, --format, --policy, --gpu and --model accept by name."""

from __future__ import annotations

from rich.table import Table

from tokenyard.cli.support.console import print_json, results
from tokenyard.cli.support.flags.known import WorkloadsCommand
from tokenyard.questions.known import known_names


def execute(flags: WorkloadsCommand) -> int:
    """Print every name with a sentence or its numbers; always 0."""
    sections = known_names()
    if flags.json:
        print_json(sections)
        return 0
    for title, names in sections.items():
        _print(title, names)
    return 0


def _print(title: str, names: dict[str, str]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False, padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True, min_width=14)
    table.add_column()
    for name, text in names.items():
        table.add_row(name, text)
    console = results()
    console.print(table)
    console.print()
