"""Known vulnerabilities of the packages that the lock files name: exit code 1 if there is one.

Runs pip-audit in an environment of its own, which it makes. Where advisories cannot be reached nothing is checked: it
says so, and exits with 0; with ``--strict``, for a build server that reaches them, with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
_ENVIRONMENT = ROOT / ".venv-audit"


def main() -> int:
    """Ask, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a package could not be checked, too")
    flags = parser.parse_args()
    python = _ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(_ENVIRONMENT, with_pip=True)
    files = [word for lock in LOCKS for word in ("-r", str(ROOT / lock))]
    asked = ["-m", "pip_audit", "--no-deps", "--disable-pip", "--format", "json", *files]
    subprocess.run([python, "-m", "pip", "install", "--quiet", "pip-audit"], check=True)
    done = subprocess.run([python, *asked], capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        print(f"not checked: {(done.stderr.strip() or 'no answer').splitlines()[-1]}")
        return int(flags.strict)
    lines, num_unchecked = told(packages)
    print("\n".join(lines))
    return int(len(lines) > 1 or (flags.strict and num_unchecked > 0))


def told(packages: list[dict[str, Any]]) -> tuple[list[str], int]:
    """What pip-audit found, as lines of which the last one counts, and how many packages it could not look up."""
    unchecked = [each["name"] for each in packages if "skip_reason" in each]
    lines = [
        f"{each['name']} {each['version']}: {found['id']}, mended in {', '.join(found['fix_versions']) or 'no release'}"
        for each in packages
        for found in each.get("vulns", ())
    ]
    counted = f"{len(packages) - len(unchecked)} packages checked, {len(lines)} vulnerabilities"
    if unchecked:
        names = f": {', '.join(unchecked)}" if len(unchecked) < len(packages) else ""
        counted += f"; not checked, as no advisories were found: {len(unchecked)}{names}"
    return [*lines, counted], len(unchecked)


if __name__ == "__main__":
    sys.exit(main())
