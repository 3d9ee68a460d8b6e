"""``tokenyard``: reads the command line, calls the sub-command, and turns whatever goes wrong into an exit code.

Exit codes:

    0    done
    1    ``parity`` found a difference
    2    the user can mend it: a message on stderr, no traceback; also where all ran but a trace is not whole
    130  interrupted

A traceback means a bug of ours. So that Ctrl-C shows none either, whenever it comes, this module itself imports next to
nothing: what takes time to load is loaded where an interrupt is expected.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

from tokenyard.cli.support.console import make_printable, say, silence, with_stdin
from tokenyard.errors import RequestError, TokenyardError, shown


def command() -> NoReturn:
    """The process of one command: the system takes back at once what the interpreter would give back piece by piece."""
    codes: list[int] = []
    atexit.register(_leave, codes)  # the first of the handlers is called last, when threads have ended
    codes.append(main())
    sys.exit(codes[0])


def _leave(codes: Sequence[int]) -> None:
    """End with the command's exit code; without one its end was an error, which the interpreter tells."""
    if codes:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # it was flushed, closed or silenced
                stream.flush()
        os._exit(codes[0])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    make_printable()
    gc.disable()  # until all is loaded: nothing of that is garbage
    typed: list[type] = []
    try:
        code = _run(arguments, typed)
        sys.stdout.flush()
    except TokenyardError as error:
        return _fail(_in_flags(error, typed))
    except MemoryError:
        return _fail("out of memory: lower --num-gpu-blocks-override, --max-num-seqs or --limit")
    except KeyboardInterrupt:
        _leave_at_once_next_time()
        say("tokenyard: interrupted")
        return 130
    except BrokenPipeError:
        silence(sys.stdout)
        return 0
    except OSError as error:
        # What the system refuses is the user's to mend, whatever asked for it: a name that is too long, a full disk.
        if error.errno is None:
            raise
        if error.filename is None:
            silence(sys.stdout)
        return _fail(_refused_by_the_system(error))
    finally:
        gc.enable()
    return code


def _run(arguments: list[str], typed: list[type]) -> int:
    """Read the command, whose class joins ``typed``, and execute it."""
    if arguments in (["-V"], ["-v"], ["--version"], ["version"]):
        from tokenyard.compiled import which_core
        from tokenyard.version import __version__

        print(f"tokenyard {__version__}")
        print(f"core: {which_core()}")
        return 0
    if arguments[:1] != ["serve"]:  # which runs models; what a replay multiplies is small
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # to begin threads takes longer than all they would do
    from tokenyard.cli.support.flags import COMMANDS, command_of, module_of
    from tokenyard.cli.support.parsing import parse

    typed += [command_of(name) for name in arguments[:1] if name in COMMANDS]
    command = with_stdin(parse(arguments))
    from tokenyard.cli.support.parsing import ignored_flags

    for sentence in ignored_flags(command, arguments):
        say(f"tokenyard: warning: {sentence}")
    execute = import_module(module_of(type(command))).execute
    gc.freeze()  # what is loaded stays
    gc.set_threshold(50_000)  # a replay makes many objects, and hardly any that point at each other
    gc.enable()
    return int(execute(command))


def _in_flags(error: TokenyardError, typed: list[type]) -> str:
    """The message, with the flags that the user knows in the place of settings."""
    from tokenyard.cli.support.flag_table import in_words_of

    words = in_words_of(typed[0] if typed else None, error.marked)
    skips = isinstance(error, RequestError)
    return f"{words} (--skip-refused goes on without such requests)" if skips else words


def _leave_at_once_next_time() -> None:
    """Another Ctrl-C, while the interpreter says goodbye, ends the process as the system does it: without a word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _refused_by_the_system(error: OSError) -> str:
    what = "the output" if error.filename is None else shown(str(error.filename))
    return f"{what} cannot be read or written: {error.strerror or error}"


def _fail(message: str) -> int:
    from tokenyard.redaction import hidden_users

    say(f"tokenyard: {hidden_users(message)}")
    return 2


if __name__ == "__main__":
    command()
