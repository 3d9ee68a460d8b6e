"""Run vLLM's own tests of its scheduler (``tests/v1/core`` of its source distribution) against FastScheduler.

    python lab/vllm_own_tests.py 0.22.1 --python .venv-vllm/bin/python
    make vllm-own-tests VLLM=0.33

The tests are brought when they are missing, into a folder that git ignores. ``lab/own_tests/VERSION.toml`` lists
which of them apply, and why the others do not: those that ask for an option that FastScheduler refuses by name, reach
into vLLM's scheduler, or need a model that the environment cannot load. Each that applies has to pass.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from own_tests.bring import bring
from own_tests.verdicts import LISTS, Outcome, listed, outcomes, table, written

__all__ = ["main"]

REPO = Path(__file__).resolve().parent.parent
FOLDER = REPO / ".vllm-own-tests"


def run(python: Path, version: str, folder: Path) -> dict[str, Outcome]:
    """Run all files but those of which none applies. SystemExit if pytest could not."""
    source = bring(version, folder)
    left_out = listed(version).files
    files = [path for path in sorted((source / "tests/v1/core").glob("test_*.py")) if path.name not in left_out]
    report = folder / f"{version}.xml"
    report.unlink(missing_ok=True)
    paths = [str(source), str(REPO / "src"), str(REPO / "lab"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "HF_HOME": str(folder / "models"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    words = [str(python), "-m", "pytest", "--noconftest", "-q", "--tb=short", "-W", "ignore", "-c", os.devnull]
    words += ["-p", "own_tests.plugin", "-p", "no:cacheprovider", "--rootdir", str(source), f"--junitxml={report}"]
    subprocess.run([*words, *map(str, files)], cwd=source, env=environment, check=False)
    if not report.is_file():
        raise SystemExit(f"pytest of {python} made no report")
    return outcomes(report)


def main(words: Sequence[str]) -> int:
    """Run, print the table; 0 if every test that applies has passed and every test is listed."""
    parser = argparse.ArgumentParser(description="vLLM's own scheduler tests against FastScheduler.")
    parser.add_argument("version", help="of vLLM: 0.22.1, 0.33.0")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="of an environment with that vLLM")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the tests are brought")
    parser.add_argument("--write", action="store_true", help="make the list anew from what passes")
    given = parser.parse_args(words)
    found = run(given.python.absolute(), given.version, given.folder.absolute())
    if given.write:
        (LISTS / f"{given.version}.toml").write_text(written(given.version, found), encoding="utf-8")
    lines, is_well = table(given.version, found)
    print("\n".join(lines))
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
