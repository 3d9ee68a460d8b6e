"""``make test`` does lint, types and the viewer's checks beside the tests: all is printed, and what fails counts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
MAKEFILE = "well:\n\t@echo well said\nworse:\n\t@echo worse said; exit 3\nlast:\n\t@echo last said\n"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def at_once(folder: Path, targets: str, command: str) -> subprocess.CompletedProcess[str]:
    (folder / "scripts").mkdir()
    shutil.copy(REPO / "scripts" / "at_once.sh", folder / "scripts")
    (folder / "Makefile").write_text(MAKEFILE, encoding="utf-8")
    words = ["bash", "scripts/at_once.sh", *targets.split(), "--", "sh", "-c", command]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_what_goes_well_is_told_after_the_command(tmp_path: Path) -> None:
    done = at_once(tmp_path, "well last", "sleep 0.2; echo tested")
    assert (done.returncode, done.stdout, done.stderr) == (0, "tested\nwell said\nlast said\n", "")


def test_what_fails_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    done = at_once(tmp_path, "well worse last", "echo tested")
    assert done.returncode == 1
    assert done.stdout == "tested\nwell said\nlast said\n"
    assert "worse failed:\nworse said\n" in done.stderr
    assert done.stderr.endswith("failed, see above: worse \n")


def test_a_command_that_fails_keeps_its_code(tmp_path: Path) -> None:
    assert at_once(tmp_path, "well", "exit 5").returncode == 5
