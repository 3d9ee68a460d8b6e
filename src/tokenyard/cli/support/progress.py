"""The progress bar of a replay: requests done, virtual time, who runs and who waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tokenyard.cli.support.console import errors
from tokenyard.sim.replay import Progress as Replayed

__all__ = ["replay_bar"]


@contextmanager
def replay_bar(total: int, what: str = "") -> Iterator[Callable[[Replayed], None] | None]:
    """What to call with a replay's progress; None when standard error is no terminal. ``what`` is replayed, if it is
    not the run itself.
    """
    console = errors()
    if not console.is_terminal:
        yield None
        return
    columns = (
        *([TextColumn("{task.description}")] if what else []),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("requests  {task.fields[clock]}"),
        TextColumn("[cyan]{task.fields[running]:,}[/] running  [yellow]{task.fields[waiting]:,}[/] waiting"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        task = progress.add_task(what, total=total, clock=_clock(0.0), running=0, waiting=0)

        def show(done: Replayed) -> None:
            progress.update(
                task,
                completed=done.num_done,
                clock=_clock(done.now),
                running=done.num_running,
                waiting=done.num_waiting,
            )

        yield show


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} simulated"
