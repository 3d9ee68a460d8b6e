"""``tokenyard plan``: which setting meets the bounds, how much load it bears, and what limits it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.console import errors, print_json, results, warn
from tokenyard.cli.support.flags import PlanCommand
from tokenyard.errors import ConfigError
from tokenyard.explain.render.console import PlainConsole
from tokenyard.questions.kept import gpus_of, read_prices
from tokenyard.questions.plan import PlanQuestion, ask, goal_of
from tokenyard.questions.planning.answer import Plan
from tokenyard.questions.planning.picture import draw, page
from tokenyard.questions.printing.plan import print_plan


def execute(flags: PlanCommand) -> int:
    """Search, print, draw; 0 if there is a recommendation that holds every bound, 1 if none does."""
    plan = make_plan(flags)
    if flags.svg is not None:
        _write("svg", flags.svg, draw(plan))
    if flags.html is not None:
        _write("html", flags.html, page(plan, _lines(plan)))
    print_json(plan) if flags.json else print_plan(plan, results())
    return 0 if plan.holds else 1


def make_plan(flags: PlanCommand) -> Plan:
    """The plan. Raises TokenyardError where a flag cannot be used, or no variant can be replayed."""
    return ask(question_of(flags))


def question_of(flags: PlanCommand) -> PlanQuestion:
    """What the flags ask. Raises ConfigError."""
    goal = goal_of(flags.maximize, flags.minimize)
    gpus = gpus_of(flags.hardware.gpu)
    flags = replace(flags, hardware=replace(flags.hardware, gpu=gpus[0]))
    return PlanQuestion(
        scenario=scenario_of(flags),
        goal=goal,
        space=[text for texts in flags.space for text in texts],
        gpus=gpus,
        splits=[text for texts in flags.split for text in texts],
        prices=read_prices(flags.price),
        replays=flags.replays,
        largest_load=flags.largest_load,
        jobs=flags.processes,
        output=flags.output,
        asked=(flags.maximize, flags.minimize),
        space_name="--set",
        status=lambda what: errors().status(what),
        bar=_bar,
        say=warn,
    )


def _lines(plan: Plan) -> list[str]:
    out = StringIO()
    print_plan(plan, PlainConsole(file=out, width=100, highlight=False))
    return out.getvalue().splitlines()


def _write(flag: str, path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(flag, str(path), f"cannot be written: {error.strerror or error}") from None


@contextmanager
def _bar(total: int) -> Iterator[Callable[[], None]]:
    """What to call with every variant that was tried; a bar where standard error is a terminal."""
    console = errors()
    if not console.is_terminal:
        yield lambda: None
        return
    columns = (
        BarColumn(bar_width=None),
        TextColumn("variants"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)
