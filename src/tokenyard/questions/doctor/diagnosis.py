"""The question: what is wrong with this server, and what would tell more?"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from os import PathLike, fspath

import msgspec

from tokenyard.arguments import suggests_keywords
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.explain.answer.answer import Answer
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.questions.doctor.evidence import Watching, gathered
from tokenyard.questions.doctor.treatment import Treatment, remedies_of, treated
from tokenyard.questions.doctor.verdict import Limits, Seen, judged
from tokenyard.questions.scenario import Bars, OnProgress, bars_of

HEALTHY, WRONG, STUCK = 0, 1, 3
"""What a command ends with: 2 is kept for what cannot be read."""
_TRACE = "/var/tmp/trace"


class Diagnosis(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a server, as far as it says so itself."""

    printer = "tokenyard.questions.printing.doctor:print_diagnosis"

    source: str
    answer: Answer
    """The verdict: its codes and words are those of every answer, its reasons those of a trace."""
    seen: Seen
    also: list[str]
    """What is worth a word beside it."""
    unknown: list[str]
    """What this cannot know without a trace."""
    assumed: list[str]
    commands: list[str]
    """Two commands that get a trace, and what it says."""
    treatment: Treatment | None = None
    """What was replayed; None: no deployment is known, or it cannot be replayed."""
    problem: str | None = None
    """Why nothing was replayed although a deployment is known."""

    @property
    def exit_code(self) -> int:
        """0: nothing is wrong; 1: requests wait, or hits are lost; 3: the engine does not move."""
        if self.answer.code == "stuck":
            return STUCK
        return HEALTHY if self.answer.code in ("idle", "empty") else WRONG

    def summary(self) -> str:
        return self.answer.sentence

    def as_table(self) -> RowTable:
        """One row per cause: ``code``, ``sure``, ``sentence``."""
        rows = [{"code": each.code, "sure": each.sure, "sentence": each.sentence} for each in self.answer.causes]
        return table_from("causes", rows)


@suggests_keywords()
def doctor(
    sources: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    deployment: Deployment | None = None,
    last: float | None = None,
    step: float | None = None,
    model_name: str | None = None,
    progress: OnProgress | bool | None = None,
) -> Diagnosis:
    """Say what is wrong with a server that runs, from its own metrics or log, without a trace and without a restart.

    ``sources``: addresses of servers, or of a Prometheus; files or folders of scrapes, of vLLM's log. A log of the
    start among them says the ``deployment``, with which the time is rebuilt, replayed, and remedies tried on it.
    ``last``, ``step``: seconds that a server is watched, and between two scrapes. Raises TokenyardError.
    """
    several = [sources] if isinstance(sources, str | PathLike) else list(sources)
    return ask(
        [fspath(each) for each in several],
        deployment=deployment,
        model_name=model_name,
        watching=Watching(last, step),
        bars=bars_of(progress),
    )


def ask(
    sources: Sequence[str],
    *,
    deployment: Deployment | None = None,
    model_name: str | None = None,
    watching: Watching | None = None,
    bars: Bars | None = None,
    seed: int = 0,
) -> Diagnosis:
    """The same, with what is told of its replays. Raises TokenyardError."""
    scrapes, log, assumed = gathered(sources, model_name, watching or Watching())
    if deployment is None and log is not None:
        deployment = Deployment(str(log))
    limits, problem = Limits(), None
    if deployment is not None:
        try:
            limits = _limits(deployment)
        except ConfigError as error:
            problem = str(error)
    answer, seen, also = judged(scrapes, limits)
    treatment = None
    if deployment is not None and problem is None and answer.code not in ("stuck", "empty"):
        try:
            treatment = treated(scrapes, deployment, answer, bars or bars_of(None), seed)
        except TokenyardError as error:
            problem = str(error)
    if treatment is not None:
        answer = msgspec.structs.replace(answer, remedies=remedies_of(treatment, answer))
    return Diagnosis(
        source=scrapes.source,
        answer=answer,
        seen=seen,
        also=also,
        unknown=_unknown(seen, limits),
        assumed=assumed,
        commands=_commands(deployment),
        treatment=treatment,
        problem=problem,
    )


def _limits(deployment: Deployment) -> Limits:
    scheduling = deployment.resolve().settled.scheduling
    return Limits(scheduling.max_num_seqs, scheduling.max_num_batched_tokens)


def _unknown(seen: Seen, limits: Limits) -> list[str]:
    found = ["which requests waited, whose they are, and the reason of each step: metrics record none"]
    if seen.is_since_start:
        found.append(
            "what happens now: one scrape has only means since the server's start; give two, some seconds apart"
        )
    elif seen.seconds < 60:
        found.append(f"what was before these {seen.seconds:,.0f} seconds")
    if limits.max_num_seqs is None:
        found.append("max_num_seqs and max_num_batched_tokens: --serve, or the log of the start, says them")
    return found


def _commands(deployment: Deployment | None) -> list[str]:
    line = None if deployment is None else deployment.settings.launch.serve
    is_line = line is not None and line.strip().startswith("vllm serve") and "\n" not in line
    start = line if is_line and line is not None else "vllm serve ..."
    return [
        f"SCHED_TRACE_PATH={_TRACE} {start} --scheduler-cls tokenyard.vllm.TracingScheduler",
        f"tokenyard report {shlex.quote(_TRACE)}",
    ]
