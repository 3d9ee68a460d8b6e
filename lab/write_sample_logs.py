"""Write logs of tests/samples/logs anew: ``write_sample_logs.py LIBRARY ...``, in an environment with that library.

What systems write that are not run for it (``shape`` in ``sample_logs/catalogue.py``) lies there as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sample_logs.libraries import WRITERS

FOLDER = Path(__file__).parent.parent / "tests" / "samples" / "logs"


def main(names: list[str]) -> None:
    """Write, and say what wrote."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not names or not {*names} <= WRITERS.keys():
        sys.exit(f"name one or more of {', '.join(WRITERS)}")
    for name in names:
        print(f"{name}: {WRITERS[name](FOLDER)}")


if __name__ == "__main__":
    main(sys.argv[1:])
