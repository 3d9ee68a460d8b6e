"""``tokenyard serve``: a model behind the OpenAI API, with a trace that can be watched while it grows."""

from __future__ import annotations

from tokenyard.cli.support.console import errors
from tokenyard.cli.support.flags import ServeCommand
from tokenyard.cli.support.model_server.api import EndingByTheBook, ToldToEnd
from tokenyard.errors import ConfigError, MissingExtraError

_MOST_CLIENTS = 200
_LONGEST_SHUTDOWN = 86_400


def execute(flags: ServeCommand) -> int:
    """Serve until a signal ends it; 0 then, also where the model was still being loaded."""
    front = flags.front
    if not 0 <= front.port <= 65_535:
        raise ConfigError("port", front.port, "must be from 0 to 65535; 0 takes any that is free")
    if not 0 <= front.shutdown_timeout <= _LONGEST_SHUTDOWN:
        raise ConfigError("shutdown_timeout", front.shutdown_timeout, f"give seconds from 0 to {_LONGEST_SHUTDOWN}")
    if not 0 <= flags.demo_clients <= _MOST_CLIENTS:
        raise ConfigError("demo_clients", flags.demo_clients, f"give a number from 0 to {_MOST_CLIENTS}")
    with EndingByTheBook() as ending:
        try:
            _serve(flags, ending)
        except ToldToEnd:
            errors().print("[dim]Ended before the model was loaded.[/]")
    return 0


def _serve(flags: ServeCommand, ending: EndingByTheBook) -> None:
    try:
        from tokenyard.cli.support.model_server.api import serve_model  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError(error.name or "starlette", "server") from None
    serve_model(flags, ending)
