"""``tokenyard plan``: which setting meets the bounds, how much load it bears, and what limits it."""

from __future__ import annotations

from dataclasses import replace

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.console import errors, print_json, replay_bar, results, variants_bar, warn, write_text
from tokenyard.cli.support.flags.replays import PlanCommand
from tokenyard.questions.plan import PlanQuestion, ask, goal_of, to_write
from tokenyard.questions.planning.answer import Plan
from tokenyard.questions.planning.search import ends_after_saying
from tokenyard.questions.printing.plan import print_plan
from tokenyard.questions.space import gpus_of, read_prices
from tokenyard.questions.writing import written


def execute(flags: PlanCommand) -> int:
    """Search, print, then draw: a file that cannot be written takes no answer with it.

    0 if there is a recommendation that holds every bound, 1 if none does.
    """
    with ends_after_saying():
        plan = make_plan(flags)
    shown = results() if flags.write is None else errors()
    print_json(plan) if flags.json else print_plan(plan, shown, header=flags.header)
    if flags.write is not None:
        print(written(flags.launch.serve, to_write(plan), flags.write, [plan.summary()]), end="")
    if flags.svg is not None:
        write_text("svg", flags.svg, plan.draw())
    if flags.html is not None:
        write_text("html", flags.html, plan.page())
    return 0 if plan.holds else 1


def make_plan(flags: PlanCommand) -> Plan:
    """The plan. Raises TokenyardError where a flag cannot be used, or no variant can be replayed."""
    return ask(question_of(flags))


def question_of(flags: PlanCommand) -> PlanQuestion:
    """The question that the flags describe. Raises ConfigError."""
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
        most_gpus=flags.gpus,
        replays=flags.replays,
        largest_load=flags.largest_load,
        jobs=flags.processes,
        ray=flags.ray,
        output=flags.output,
        calibrate=flags.calibrate,
        bars=replay_bar,
        asked=(flags.maximize, flags.minimize),
        space_name="--set",
        status=lambda what: errors().status(what),
        bar=variants_bar,
        say=warn,
    )
