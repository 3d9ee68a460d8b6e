"""Search for what no test has met yet (`make explore MINUTES=60`): for a night, not for a change.

In turns, until the time is over: a file of property tests (the state machines among them) with a new seed and, where
.venv-vllm is built, scenarios drawn at random, recorded from real vLLM and replayed. Ends at the first failure, which
is printed with what repeats it; hypothesis keeps the shortest example in .hypothesis and tries it first.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

__all__ = ["main"]

REPO = Path(__file__).resolve().parent.parent
VLLM = REPO / ".venv-vllm" / "bin" / "python"
SCENARIOS = 20
"""Scenarios per round."""
_PROPERTIES = sorted(str(path.relative_to(REPO)) for path in (REPO / "tests" / "property").glob("test_*.py"))
FILES = cycle(secrets.SystemRandom().sample(_PROPERTIES, len(_PROPERTIES)))
"""Files of property tests, in another order each time."""
GRACE = 20
"""Seconds that a search has to end in when the time is over."""


def _run(command: list[str], deadline: float) -> int | None:
    """The exit status; None if the time was over first."""
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"TOKENYARD_EXAMPLES": "all"}
    running = subprocess.Popen(command, cwd=REPO, env=environment)
    try:
        return running.wait(max(1, deadline - time.time()))
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGINT)  # as Ctrl-C would: it ends by itself what it has started
    try:
        running.wait(GRACE)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
    return None


def _search_properties(deadline: float) -> int | None:
    """One file at a time, so that a short search comes to the end of some."""
    file = next(FILES)
    seed = secrets.randbelow(2**32)
    command = [sys.executable, "-m", "pytest", "-x", "-q", file, f"--hypothesis-seed={seed}"]
    print(f"$ {' '.join(command[1:])}", flush=True)
    return _run(command, deadline)


def _search_scenarios(deadline: float) -> int | None:
    first = secrets.randbelow(10**6)
    span = f"{first}-{first + SCENARIOS - 1}"
    print(f"$ make record-vectors ARGS='--drawn {span} --output FOLDER' && tokenyard parity FOLDER", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        record = [str(VLLM), "lab/record_vectors.py", "--drawn", span, "--output", folder]
        status = _run(record, deadline)
        if status != 0:
            return status
        if not any(Path(folder).iterdir()):
            return 0  # vLLM gave up on all of them, and said so
        return _run([sys.executable, "-m", "tokenyard.cli.main", "parity", folder], deadline)


def main() -> int:
    """Search until the time is over: 0 if nothing was found, else the status of what failed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to search (default: 30)")
    deadline = time.time() + 60 * parser.parse_args().minutes
    searches = [_search_properties]
    if VLLM.exists():
        searches.append(_search_scenarios)
    else:
        print("not searched: random scenarios (no .venv-vllm: `make record-vectors` builds it)", flush=True)
    rounds = 0
    while time.time() < deadline:
        status = searches[rounds % len(searches)](deadline)
        if status is None:
            break
        if status:
            return status
        rounds += 1
    print(f"nothing found: {rounds} searches came to their end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
