"""Write the logs of tests/samples/logs anew: ``write_sample_logs.py [WRITER ...]``, in an environment with its library.

Without a name all that are shapes written here (sample_logs/shapes.py); a library's name runs that library.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sample_logs.libraries import WRITERS
from sample_logs.shapes import write_shapes

FOLDER = Path(__file__).parent.parent / "tests" / "samples" / "logs"


def main(names: list[str]) -> None:
    """Write, and say what wrote."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(f"{name}: {WRITERS[name](FOLDER)}")
    if not names:
        write_shapes(FOLDER)


if __name__ == "__main__":
    main(sys.argv[1:])
