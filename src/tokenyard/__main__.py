"""``python -m tokenyard`` is the command ``tokenyard``."""

from tokenyard.cli.main import main

if __name__ == "__main__":
    main()
