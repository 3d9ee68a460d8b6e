"""``tokenyard view``: the viewer, on traces of this machine."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from tokenyard.cli.support.console import errors, results, warn
from tokenyard.cli.support.flags.traces import ViewCommand
from tokenyard.errors import MissingExtraError


def execute(flags: ViewCommand) -> int:
    """Serve until interrupted; 0 then."""
    return show(flags.paths, host=flags.host, port=flags.port, browser=flags.browser)


def show(paths: tuple[Path, ...], *, host: str, port: int | None, browser: bool, state: str = "") -> int:
    """Serve until interrupted; 0 then. ``state`` is what the page shows at first."""
    try:
        from tokenyard.web.serve import open_browser, view  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError(error.name or "starlette", "server") from None

    def ready(url: str) -> None:
        results().print(f"The viewer is at [bold]{escape(url)}[/]", soft_wrap=True)
        errors().print("[dim]Ctrl-C ends it.[/]")
        if browser:
            open_browser(url)

    view(paths, host=host, port=port, state=state, on_ready=ready, warn=warn)
    return 0
