"""``python -m tokenyard`` is the command ``tokenyard``."""

from __future__ import annotations

from tokenyard.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
