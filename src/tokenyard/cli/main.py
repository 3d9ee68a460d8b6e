"""``tokenyard``: reads the command line, calls the sub-command, and turns whatever goes wrong into an exit code.

Exit codes:

    0    done
    1    ``parity`` found a difference
    2    the user can mend it: a message on stderr, no traceback
    130  interrupted

A traceback means a bug of ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from importlib.metadata import version
from operator import or_
from typing import Annotated, Any, cast

import tyro

from tokenyard.cli.flags import COMMANDS, Command
from tokenyard.errors import TokenyardError

__all__ = ["main", "parse"]

_DESCRIPTION = "vLLM's scheduler as a library: replay traffic through it and see what held requests back."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:
        print(f"tokenyard {version('tokenyard')}")
        return 0
    try:
        command = parse(arguments)
        module = import_module(f"tokenyard.cli.{COMMANDS[type(command)]}")
        code = int(module.execute(command))
        sys.stdout.flush()
    except TokenyardError as error:
        return _fail(str(error))
    except MemoryError:
        return _fail("out of memory: lower num_gpu_blocks, max_num_seqs or the size of the workload")
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter must not complain when it flushes at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _fail(message: str, code: int = 2) -> int:
    print(f"tokenyard: {message}", file=sys.stderr)
    return code


def parse(arguments: list[str]) -> Command:
    """The command with its flags; tyro prints help and mistakes itself and leaves with 0 or 2."""
    known: list[Any] = [Annotated[command, tyro.conf.subcommand(name)] for command, name in COMMANDS.items()]
    parsed = tyro.cli(
        reduce(or_, known),
        prog="tokenyard",
        description=_DESCRIPTION,
        args=arguments,
        config=(tyro.conf.DisallowNone, tyro.conf.EnumChoicesFromValues, tyro.conf.OmitSubcommandPrefixes),
    )
    return cast(Command, parsed)


if __name__ == "__main__":
    sys.exit(main())
