"""`make differential-config`: the same `vllm serve` lines through vLLM's own configuration and ours.

Runs in an environment of vLLM's, on any machine: vLLM is made to believe in a GPU. Lines are drawn by number, from a
random first one unless it is given, which is printed. Exit 1 if a value that decides scheduling, memory or steps
differs, if we start what vLLM refuses, or if we say of a line that vLLM would not start and it would.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import config_oracle  # noqa: F401 - sets the environment that vLLM reads
from ask_vllm import ask_vllm
from config_oracle.compare import Outcome, judge
from config_oracle.draw import Case, as_text, draw, each_method, recorded
from config_oracle.ours import Ours
from config_oracle.theirs import Refused, Theirs
from noted import note_longest
from tokenyard.deploy.vllm_serve.models import ONLINE
from tokenyard.models.gpus import GPUS

__all__ = ["main"]

_FIRST = 1 << 30
"""Random first numbers are below it."""
_LONGEST = 6 * 3600
"""Seconds that all lines of a GPU may take."""
_EVERY = 250
"""Lines between two words of progress."""


def main(words: Sequence[str] | None = None) -> int:
    """Compare that many lines: 0 if all agree."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--cases", type=int, default=5000, help="lines to compare (default: 5000)")
    parser.add_argument("--first", type=int, default=None, help="number of the first one (default: a random one)")
    parser.add_argument("--lines", type=Path, help="a file of lines, one JSON object each, instead of drawn ones")
    parser.add_argument(
        "--methods", action="store_true", help="every method of quantisation with every kind of weights"
    )
    parser.add_argument("--version", default="0.33", help="of the flags that --record draws (default: 0.33)")
    parser.add_argument("--record", type=Path, help="write the drawn lines to such a file, and end")
    parser.add_argument("--most", type=int, default=20, help="differences to print (default: 20)")
    parser.add_argument("--reasons", type=int, default=8, help="reasons of each kind to print (default: 8)")
    parser.add_argument("--verbose", action="store_true", help="print every case")
    parser.add_argument("--note", action="store_true", help="keep the counts for the page of parity")
    flags = parser.parse_args(words)
    if flags.lines is not None:
        return _compared(recorded(flags.lines.read_text()), Theirs(), flags)
    if flags.methods:
        theirs = Theirs()
        return _compared(each_method(theirs.methods | ONLINE), theirs, flags)
    first = random.SystemRandom().randrange(_FIRST) if flags.first is None else flags.first
    print(f"first number {first}", flush=True)
    if flags.record is not None:
        flags.record.write_text(as_text(draw(number, flags.version) for number in range(first, first + flags.cases)))
        return 0
    theirs = Theirs()
    return _compared([draw(number, theirs.known_as) for number in range(first, first + flags.cases)], theirs, flags)


def _compared(cases: Sequence[Case], theirs: Theirs, flags: argparse.Namespace) -> int:
    """Ask both, print what differs and how many of each kind there are: 1 if any differs."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    began = time.monotonic()
    ours = Ours()
    theirs.warm(sorted({case.model for case in cases}))
    outcomes = []
    shown = 0
    for case, outcome in _outcomes(cases, theirs, ours):
        outcomes.append(outcome)
        if (outcome.differs and shown < flags.most) or flags.verbose:
            shown += 1
            print(f"{case.number} {outcome.kind}, {case.gpu}: {case.line}")
            print("".join(f"    {detail[:500]}\n" for detail in outcome.details), end="", flush=True)
        if len(outcomes) % _EVERY == 0:
            print(f"{len(outcomes)} lines, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(f"vLLM {theirs.version}: {len(cases)} lines, {time.monotonic() - began:.0f} s")
    _print_counts(outcomes, flags.reasons)
    wrong = sum(outcome.differs for outcome in outcomes)
    if flags.note:
        kinds = Counter(outcome.kind for outcome in outcomes)
        figures = {"cases": len(cases), "first": cases[0].number, "equal": kinds["equal"], "different": wrong}
        note_longest(theirs.known_as, "config", "cases", {"release": theirs.version, **figures})
    if wrong:
        print(f"{wrong} differ; again: make differential-config VLLM={theirs.known_as} CASES=1 ARGS='--first NUMBER'")
    return int(wrong > 0)


def _print_counts(outcomes: Sequence[Outcome], most_reasons: int) -> None:
    kinds = Counter(outcome.kind for outcome in outcomes)
    for kind, count in kinds.most_common():
        print(f"  {count:6,}  {kind}")
        if kind == "equal" or Outcome(kind).differs:
            continue
        reasons = Counter(_short(outcome.details[0]) for outcome in outcomes if outcome.kind == kind)
        for why, times in reasons.most_common(most_reasons):
            print(f"          {times:6,}  {why}")


def _short(reason: str) -> str:
    """A reason without what every one of pydantic's begins with, and without values."""
    lines = [line for line in reason.splitlines() if "validation error for" not in line]
    return re.sub(r"\d+", "N", " ".join(lines).replace("Value error, ", "").strip())[:110]


def _outcomes(cases: Sequence[Case], theirs: Theirs, ours: Ours) -> Iterator[tuple[Case, Outcome]]:
    """A question for each GPU, since vLLM caches what it has asked of one."""
    for gpu in sorted({case.gpu for case in cases}):
        own = [case for case in cases if case.gpu == gpu]
        answer = ask_vllm(partial(_of_gpu, theirs, ours), _LONGEST, gpu=gpu, cases=as_text(own))
        if isinstance(answer, dict):
            raise SystemExit(f"the process of {gpu} ended early: {answer['error']}")
        for case, (kind, details) in zip(own, answer, strict=True):
            yield case, Outcome(kind, tuple(details))


def _of_gpu(theirs: Theirs, ours: Ours, gpu: str, cases: str) -> list[Any]:
    """Kind and details of every line. vLLM keeps some of what any flag has set: such a line is asked about apart."""
    theirs.take(gpu, GPUS[gpu].memory_bytes)
    answers = []
    for case in recorded(cases):
        ask = partial(_of_line, theirs, ours)
        found = ask_vllm(ask, _LONGEST, case=as_text([case])) if case.has_any_flags else ask(as_text([case]))
        if isinstance(found, dict):
            raise RuntimeError(f"line {case.number}: {found['error']}")
        answers.append(found)
    return answers


def _of_line(theirs: Theirs, ours: Ours, case: str) -> list[Any]:
    outcome = _outcome(recorded(case)[0], theirs, ours)
    return [outcome.kind, outcome.details]


def _outcome(case: Case, theirs: Theirs, ours: Ours) -> Outcome:
    answer = ours.settle(case, theirs.known_as)
    try:
        return judge(theirs.settle(case), answer)
    except Refused as error:
        return judge(str(error), answer)


if __name__ == "__main__":
    sys.exit(main())
