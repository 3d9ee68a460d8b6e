"""``python -m tokenyard`` is the command ``tokenyard``."""

from __future__ import annotations

from tokenyard.cli.main import command

if __name__ == "__main__":
    command()
