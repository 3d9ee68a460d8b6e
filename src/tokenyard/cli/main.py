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
from contextlib import suppress
from functools import reduce
from importlib import import_module
from importlib.metadata import version
from operator import or_
from typing import Annotated, Any, TextIO, cast

import tyro

from tokenyard.cli.flags import COMMANDS, Command
from tokenyard.cli.numbers import number_registry
from tokenyard.cli.wording import as_flags
from tokenyard.errors import RequestError, TokenyardError, shown

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
    except RequestError as error:
        return _fail(f"{as_flags(str(error))} (--skip-refused goes on without such requests)")
    except TokenyardError as error:
        return _fail(str(error))
    except MemoryError:
        return _fail("out of memory: lower --num-gpu-blocks-override, --max-num-seqs or --limit")
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        _silence(sys.stdout)
        return 0
    except OSError as error:
        # What the system refuses is the user's to mend, whoever asked for it: a name that is too long, a full disk.
        if error.errno is None:
            raise
        if error.filename is None:
            _silence(sys.stdout)
        return _fail(_refused_by_the_system(error))
    return code


def _silence(stream: TextIO) -> None:
    """Whoever reads our output has gone, or takes no more; the interpreter must not complain at its exit."""
    with suppress(OSError, ValueError):  # not a file of the system's, as under tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _refused_by_the_system(error: OSError) -> str:
    what = "the output" if error.filename is None else shown(str(error.filename))
    return f"{what} cannot be read or written: {error.strerror or error}"


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
        registry=number_registry(),
        config=(tyro.conf.DisallowNone, tyro.conf.EnumChoicesFromValues, tyro.conf.OmitSubcommandPrefixes),
    )
    return cast(Command, parsed)


if __name__ == "__main__":
    sys.exit(main())
