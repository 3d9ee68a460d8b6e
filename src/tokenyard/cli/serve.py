"""``tokenyard serve``: a model behind the OpenAI API, with a trace that can be watched while it grows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.markup import escape

from tokenyard.cli.support.console import busy, errors, results, warn
from tokenyard.cli.support.flags.serving import ServeCommand
from tokenyard.errors import MissingExtraError
from tokenyard.serve.ending import EndedWhileLoading, OrderlyEnd

if TYPE_CHECKING:
    from tokenyard.serve.openai.model_server import ServedModel


def execute(flags: ServeCommand) -> int:
    """Serve until a signal ends it; 0 then, also where the model was still being loaded."""
    with OrderlyEnd() as ending:
        try:
            _serve(flags, ending)
        except EndedWhileLoading:
            errors().print("[dim]Ended before the model was loaded.[/]")
    return 0


def _serve(flags: ServeCommand, ending: OrderlyEnd) -> None:
    try:
        from tokenyard.serve.openai.model_server import ModelServerSettings, serve_model  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError(error.name or "starlette", "server") from None
    settings = ModelServerSettings(
        model=flags.model,
        engine=asdict(flags.engine),
        access=flags.access,
        front=flags.front,
        output=flags.output,
        view=flags.view,
        demo_clients=flags.demo_clients,
    )
    serve_model(settings, ending, loading=lambda name: busy(f"loading {name}"), on_ready=_announce, warn=warn)


def _announce(served: ServedModel) -> None:
    out, name = results(), served.context.names[0]
    out.print(f"[bold]{escape(name)}[/] is served at [bold]{escape(served.url)}v1[/]", soft_wrap=True)
    for sentence in served.facts:
        out.print(escape(sentence), soft_wrap=True)
    errors().print("[dim]Ctrl-C ends it.[/]")
