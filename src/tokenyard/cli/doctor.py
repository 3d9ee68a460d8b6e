"""``tokenyard doctor``: what is wrong with a server that runs, from what it says of itself."""

from __future__ import annotations

import time
from typing import Any

from tokenyard.cli.support.console import errors, print_json, replay_bar, results
from tokenyard.cli.support.flags.operating import DoctorCommand
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.spec import seconds_of
from tokenyard.errors import ConfigError
from tokenyard.questions.doctor.alerts import alert_rules
from tokenyard.questions.doctor.diagnosis import Diagnosis, ask
from tokenyard.questions.doctor.evidence import Watching
from tokenyard.questions.doctor.treatment import changes_of
from tokenyard.questions.printing.doctor import print_diagnosis, remedy_in_words
from tokenyard.questions.writing import written


def execute(flags: DoctorCommand) -> int:
    """Look, print, and say by the exit code whether anything is wrong; with ``--watch`` until interrupted."""
    deployment = None
    if flags.serve is not None:
        named: dict[str, Any] = {} if flags.gpu is None else {"gpu": flags.gpu}
        deployment = Deployment(flags.serve, **named)
    if flags.prom_rules:
        print(alert_rules(deployment), end="")
        return 0
    if flags.watch:
        return _watch(flags, deployment)
    told = _look(flags, deployment)
    if flags.json:
        print_json(told)
    else:
        print_diagnosis(told, results() if flags.write is None else errors())
    if flags.write is not None:
        _write(flags, told)
    return told.exit_code


def _write(flags: DoctorCommand, told: Diagnosis) -> None:
    """Write the first remedy that helped. Raises ConfigError where none did."""
    assert flags.write is not None
    tried = [each for each in told.answer.remedies if each.is_tried]
    changes = {} if told.treatment is None or not tried else changes_of(told.treatment, tried[0])
    if not changes:
        raise ConfigError("write", flags.write, "no remedy was replayed and helped, so there is nothing to write")
    why = [told.answer.sentence, remedy_in_words(told, tried[0])]
    print(written(flags.serve, changes, flags.write, why), end="")


def _look(flags: DoctorCommand, deployment: Deployment | None) -> Diagnosis:
    last = None if flags.last is None else seconds_of("last", flags.last)
    step = None if flags.step is None else seconds_of("step", flags.step)
    bars = replay_bar
    with errors().status("looking"):
        return ask(
            flags.sources,
            deployment=deployment,
            model_name=flags.model_name,
            watching=Watching(last, step),
            bars=bars,
        )


def _watch(flags: DoctorCommand, deployment: Deployment | None) -> int:
    """A line for each look: the time, the queues, the verdict."""
    if not any("://" in each for each in flags.sources):
        raise ConfigError("watch", True, "files do not change: name an address, or leave it out")
    while True:
        told = _look(flags, deployment)
        if flags.json:
            print_json(told)
        else:
            results().print(f"{time.strftime('%H:%M:%S')}  {told.answer.sentence}", markup=False)
