"""``python -m tokenyard`` is the command ``tokenyard``."""

from __future__ import annotations

import sys

from tokenyard.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
