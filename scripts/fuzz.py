"""Look for inputs and steps that break something (`make fuzz`): 10,000 hostile files, a million random steps and more.

Files are sound ones of every kind, changed at random (``fuzzing/mutations.py``) and given to a command that reads such
files. Nothing may end in a traceback, take longer than 20 s or more than 1 GiB, kill its process or print a terminal
escape. Steps are those of the state machine of the tests, which has every feature and checks every invariant, and, with
``--walk``, those of long walks of a bare scheduler and of an engine core under every call of a host. A file that fails
is kept in a folder, with the command; the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

from rich.console import Console  # noqa: E402
from rich.progress import Progress  # noqa: E402

from fuzzing.inputs import Failure, fuzz_inputs  # noqa: E402 - the tests' folder has to be found first
from fuzzing.steps import fuzz_steps  # noqa: E402
from fuzzing.walks import walk_steps  # noqa: E402
from tokenyard.compiled import core_is_compiled  # noqa: E402

__all__ = ["main"]

MOST_FAILURES = 20
"""Enough to look at; then the search ends."""


def main() -> int:
    """0 if everything was borne."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000, help="hostile files (default: 10,000)")
    parser.add_argument("--steps", type=int, default=1_000_000, help="random steps (default: 1,000,000)")
    parser.add_argument("--walk", type=int, default=0, help="steps of long walks (default: none)")
    parser.add_argument("--seed", type=int, default=None, help="of all; by default the time")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="folder for what fails")
    flags = parser.parse_args()
    seed = int(time.time()) if flags.seed is None else flags.seed
    console = Console()
    console.print(f"seed {seed}")
    failed = _inputs(flags.inputs, seed, flags.keep, console)
    if flags.steps:
        _steps("random steps", fuzz_steps(flags.steps, seed), flags.steps, console)
    if flags.walk:
        _steps("steps of long walks", walk_steps(flags.walk, seed), flags.walk, console)
    return 1 if failed else 0


def _inputs(count: int, seed: int, keep: Path, console: Console) -> int:
    failures = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Progress(console=console, transient=True) as progress:
        task = progress.add_task("hostile files", total=count)
        for failure in fuzz_inputs(count, seed, Path(folder)) if count else ():
            progress.advance(task)
            if failure is None:
                continue
            failures += 1
            console.print(f"[red]{failure.what}[/]: tokenyard {' '.join(failure.command)}", highlight=False)
            console.print(failure.said[-600:], markup=False, highlight=False)
            _keep(failure, keep / f"{seed}-{failures:02d}")
            if failures >= MOST_FAILURES:
                console.print("that is enough to look at")
                break
    if count:
        seconds = time.monotonic() - began
        kept = f"; they are in {keep}" if failures else ""
        console.print(f"hostile files: {count:,} in {seconds:,.0f} s, {failures} not borne{kept}")
    return failures


def _keep(failure: Failure, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / failure.name).write_bytes(failure.data)
    said = f"tokenyard {' '.join(failure.command)}\n{failure.what}\n\n{failure.said}"
    (folder / "command.txt").write_text(said, errors="backslashreplace")


def _steps(what: str, taken: Iterator[int], count: int, console: Console) -> None:
    began, steps = time.monotonic(), 0
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(what, total=count)
        for steps in taken:
            progress.update(task, completed=steps)
    core = "compiled" if core_is_compiled() else "interpreted"
    console.print(f"{what}: {steps:,} in {time.monotonic() - began:,.0f} s, {core} core, every invariant held")


if __name__ == "__main__":
    sys.exit(main())
